"""Tests of what changes while an agent runs."""
