"""Tests of the embedded schema registry."""
