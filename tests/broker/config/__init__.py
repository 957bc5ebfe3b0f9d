"""Tests of settings: of agents, topics and groups."""
