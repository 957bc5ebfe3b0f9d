"""Tests of handlers, one API or a few that belong together a file."""
