"""The documentation: its site, and that what its blocks of code say is true."""
