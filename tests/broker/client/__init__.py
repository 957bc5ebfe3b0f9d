"""Unit tests of `broker.client`."""
