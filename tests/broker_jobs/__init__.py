"""Tests of the jobs that keep a cluster bounded."""
