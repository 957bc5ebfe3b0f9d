"""Tests of `frazil bench`."""
