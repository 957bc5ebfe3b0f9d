"""Tests of the parsers of schemas."""
