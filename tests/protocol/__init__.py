"""Tests of the protocol package: properties against kio, golden frames, hostile bytes."""
