"""Tests of the admin listener."""
