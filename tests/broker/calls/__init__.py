"""Tests of what a request carries on its way: stalls."""
