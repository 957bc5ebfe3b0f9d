"""Tests of tables of mode upsert."""
