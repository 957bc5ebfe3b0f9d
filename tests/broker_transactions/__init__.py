"""Transactions through whole agents: their requests, challenges, timeouts, and the old holes."""
