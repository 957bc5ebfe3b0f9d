"""Several agents of one machine, and their supervisor."""
