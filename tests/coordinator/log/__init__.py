"""Tests of the adapters of the metadata log."""
