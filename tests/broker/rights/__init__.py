"""Tests of the broker's edge: connections, the listener, and whole agents without sockets."""
