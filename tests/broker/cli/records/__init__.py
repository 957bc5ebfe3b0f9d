"""`frazil produce` and `frazil consume`: what needs no cluster."""
