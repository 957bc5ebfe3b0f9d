"""Tests of `frazil log`."""
