"""Tests of `frazil topic` and of project files."""
