"""Tests of the cluster as one agent sees it."""
