"""Tests of `frazil backup`."""
