"""Sequence windows of producers."""
