"""Tests of what an agent asks of its store beside records."""
