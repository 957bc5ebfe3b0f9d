"""Tests of `frazil recover`."""
