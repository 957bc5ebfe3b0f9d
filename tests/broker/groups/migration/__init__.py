"""Tests of groups that change their protocol."""
