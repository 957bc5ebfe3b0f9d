"""Bodies of requests, read at a bounded cost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.registry.request_body import MEMBERS_MAX, VALUE_CHARACTERS_MAX, read_object

_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_an_object_is_read_as_json_reads_it(members: dict[str, Any], indent: Any) -> None:
    assert read_object(f" {json.dumps(members, indent=indent)}\r\n") == members


@given(st.text(st.sampled_from('{}[]":,a1 \\'), max_size=12))
def test_what_json_refuses_is_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert read_object(text) == expected
    else:
        with pytest.raises(ValueError, match=r"."):
            read_object(text)


def test_a_text_may_be_long_and_nothing_else() -> None:
    long = "\\" * (1 << 20)
    assert read_object(json.dumps({"schema": long})) == {"schema": long}
    with pytest.raises(ValueError, match=r"."):
        read_object(json.dumps({"references": [1] * VALUE_CHARACTERS_MAX}))


def test_members_are_few() -> None:
    members = {str(number): 1 for number in range(MEMBERS_MAX)}
    assert read_object(json.dumps(members)) == members
    with pytest.raises(ValueError, match=f"more than {MEMBERS_MAX} members"):
        read_object(json.dumps(members | {"more": 1}))


@pytest.mark.parametrize("text", ['{"a": ' + "[" * 100_000, '{"a": ' + '{"a":' * 50_000])
def test_what_is_deep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too deeply"):
        read_object(text)
