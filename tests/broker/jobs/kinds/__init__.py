"""Tests of the plans of jobs, kind by kind."""
