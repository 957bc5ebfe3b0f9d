"""Tests of records out of chunks."""
