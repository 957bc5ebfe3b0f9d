"""Tests of groups of the classic protocol."""
