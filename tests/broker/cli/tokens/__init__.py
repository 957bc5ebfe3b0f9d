"""Tests of `frazil token`."""
