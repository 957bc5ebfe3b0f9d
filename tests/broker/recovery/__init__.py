"""Tests of how a lost log is begun anew."""
