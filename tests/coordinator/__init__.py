"""Tests of coordinator/: a folder for each of its rooms; the shells beside them."""
