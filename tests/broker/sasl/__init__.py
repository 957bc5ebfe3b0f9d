"""Unit tests of `broker.sasl`."""
