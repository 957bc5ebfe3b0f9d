"""Tests of the machine: histories, stories, and what holds for all of them."""
