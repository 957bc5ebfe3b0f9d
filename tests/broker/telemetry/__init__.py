"""Tests of clients' metrics: what is asked, what is read, what is told."""
