"""Tests of commands as bytes, and of the digest."""
