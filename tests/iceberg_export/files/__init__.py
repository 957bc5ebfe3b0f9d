"""Tests of data files and table partitions."""
