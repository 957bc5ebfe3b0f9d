"""One suite per port, run against every adapter: the memory ones and the real parts."""
