"""Tests of the produce path, on real coordinators over memory adapters."""
