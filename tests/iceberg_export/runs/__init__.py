"""Tests of runs: from plan to commit, with and without Spark, with and without faults."""
