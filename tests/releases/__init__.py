"""Releases before this one: what they wrote is read, and they run beside this one (see `__main__`)."""
