"""Tests of the exporter: decoder, plans, state, commit, and the whole way with and without Spark."""
