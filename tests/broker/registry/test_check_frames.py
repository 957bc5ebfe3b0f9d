"""Questions about schemas and their answers, as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.registry.check_frames import (
    LENGTH,
    FrameError,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from broker.registry.checks import (
    Answer,
    CheckValues,
    CompareSchemas,
    FormatSchema,
    Question,
    ReadSchema,
    ReadValues,
    StoredSchema,
)
from coordinator.commands.table_commands import Reference, SchemaKind

KINDS = st.sampled_from(list(SchemaKind))
BYTES = st.binary(max_size=20)
BODIES = st.lists(st.tuples(st.text(), BYTES), max_size=3).map(tuple)
STORED = st.builds(StoredSchema, KINDS, BYTES, BYTES, BODIES)
REFERENCES = st.lists(st.builds(Reference, st.text(), st.text(), st.integers()), max_size=3)
PATHS = st.lists(st.integers(0, 9), max_size=3).map(tuple)
QUESTIONS = st.one_of(
    st.builds(
        ReadSchema,
        KINDS,
        st.text(),
        BODIES,
        REFERENCES.map(tuple),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        CompareSchemas,
        st.text(),
        STORED,
        st.lists(st.tuples(st.integers(), STORED), max_size=3).map(tuple),
    ),
    st.builds(FormatSchema, STORED, st.text()),
    st.builds(
        CheckValues,
        st.lists(STORED, max_size=2).map(tuple),
        st.lists(st.tuples(st.integers(0, 1), BYTES), max_size=4).map(tuple),
    ),
    st.builds(
        ReadValues,
        st.lists(STORED, max_size=2).map(tuple),
        st.lists(st.tuples(st.integers(0, 1), PATHS, BYTES), max_size=4).map(tuple),
        st.integers(0, 1 << 20),
    ),
)
ANSWERS = st.builds(
    Answer,
    st.text(),
    BYTES,
    BYTES,
    st.lists(st.text()).map(tuple),
    st.lists(st.tuples(st.integers(), st.text()), max_size=3).map(tuple),
    st.integers(),
)


def behind_length(frame: bytes) -> bytes:
    assert LENGTH.unpack_from(frame) == (len(frame) - LENGTH.size,)
    return frame[LENGTH.size :]


@given(QUESTIONS)
def test_a_question_comes_as_it_was_sent(question: Question) -> None:
    assert decode_question(behind_length(encode_question(question))) == question


@given(ANSWERS)
def test_an_answer_comes_as_it_was_sent(answer: Answer) -> None:
    assert decode_answer(behind_length(encode_answer(answer))) == answer


def test_a_text_that_is_there_often_is_sent_once() -> None:
    body = bytes(10_000)
    stored = StoredSchema(SchemaKind.AVRO, b"", body, (("a", body),))
    question = CompareSchemas("FULL", stored, ((1, stored), (2, stored)))
    assert len(encode_question(question)) < 11_000


@given(st.one_of(BYTES, st.builds(lambda text: LENGTH.pack(len(text)) + text, BYTES)))
def test_bytes_that_are_no_frame_are_a_frame_error(data: bytes) -> None:
    for decode in (decode_question, decode_answer):
        with pytest.raises(FrameError):
            decode(data)


@given(ANSWERS, st.integers(0, 30))
def test_a_frame_that_was_cut_is_a_frame_error(answer: Answer, cut: int) -> None:
    data = behind_length(encode_answer(answer))
    with pytest.raises(FrameError):
        decode_answer(data[: max(0, len(data) - 1 - cut)])
