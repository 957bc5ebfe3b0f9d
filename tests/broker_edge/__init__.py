"""Tests of the broker's edge: connections, dispatch, placement, and the cold handlers."""
