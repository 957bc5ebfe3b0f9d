"""Tests of typed columns."""
