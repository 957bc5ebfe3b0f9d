"""Tests of `frazil group`."""
