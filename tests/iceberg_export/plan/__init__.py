"""Tests of plans: which bytes which task reads."""
