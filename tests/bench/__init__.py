"""Measurements of hot paths: programs that print, never timed tests."""
