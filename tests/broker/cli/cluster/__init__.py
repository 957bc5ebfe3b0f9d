"""Tests of `frazil cluster` and `frazil config`."""
