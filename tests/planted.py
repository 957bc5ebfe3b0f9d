"""Tests that draw, one of which fails: `test_properties.py` runs them by name."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=20)
@given(st.lists(st.integers() | st.floats() | st.text() | st.binary()))
def test_draws(value):
    print("drawn", repr(value))


@pytest.mark.parametrize("seed", range(3))
def test_takes_a_seed(seed):
    print("drawn", random.Random(seed).random())


@given(st.integers(), st.integers())
def test_fails(one, other):
    assert one + other < 1000
