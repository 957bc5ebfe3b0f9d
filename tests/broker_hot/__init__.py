"""Tests of the hot paths, produce and fetch, on real coordinators over memory adapters."""
