"""Tests of the shells of coordinator/: adapters, replica, proposer, membership, facade."""
