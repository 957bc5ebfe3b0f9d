"""Tests of the fetch path, on real coordinators over memory adapters."""
