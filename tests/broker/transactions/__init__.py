"""Tests of transactions at agents: requests, timeouts, what clients see."""
