"""Tests of the exporter's command line."""
