"""Tests: mirrors of the packages, contracts, scripts, simulator, clients and faults."""
