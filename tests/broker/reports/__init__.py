"""Tests of what is told of topics, groups and the log."""
