"""Tests of tables with dead letters."""
