"""Tests of the formats of objects."""
