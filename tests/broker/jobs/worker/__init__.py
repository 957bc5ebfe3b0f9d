"""Tests of the worker of the jobs."""
