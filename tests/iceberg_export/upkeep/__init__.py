"""Tests of upkeep and resets."""
