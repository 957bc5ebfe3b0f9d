"""Tests of tables: catalogs, commits, state, columns."""
