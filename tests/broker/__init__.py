"""Tests of broker/: a folder for each of its rooms; whole agents beside them."""
