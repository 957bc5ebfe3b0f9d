"""Tests of the tables of the machine, one by one."""
