"""The pure core of `coordinator`: codec, machine, tables, plans."""
