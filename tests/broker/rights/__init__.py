"""Tests of rights: decisions, lines of the audit, and what requests are told."""
