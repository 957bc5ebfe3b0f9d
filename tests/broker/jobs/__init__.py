"""Tests of the jobs: who holds them, where they run, what they do together."""
