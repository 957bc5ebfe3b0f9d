"""Tests of the tables of what administrators say."""
