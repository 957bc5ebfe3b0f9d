"""Tests of the check of a cluster, and of what is declared lost."""
