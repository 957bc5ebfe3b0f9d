"""Unit tests of `broker.trial`."""
