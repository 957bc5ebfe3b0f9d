"""Codes of what a person must mend: where they come from, and that each is told once."""

import pickle

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.fault_codes import FAULTS, FaultCode, FaultError, Sentence, coded, fault_of, told


class AwayError(FaultError):
    fault = FaultCode.STORE_UNREACHABLE


def wrapped(cause: Exception, outer: Exception) -> Exception:
    """The outer error, raised for the cause."""
    with pytest.raises(type(outer)) as raised:
        raise outer from cause
    return raised.value


def test_an_error_has_the_code_of_its_class_or_its_own() -> None:
    assert fault_of(AwayError("x")) is FaultCode.STORE_UNREACHABLE
    assert fault_of(AwayError("x", fault=FaultCode.DISK_FULL)) is FaultCode.DISK_FULL
    assert fault_of(AwayError(Sentence("x", FaultCode.CLOCK_SKEW))) is FaultCode.CLOCK_SKEW
    assert fault_of(FaultError("x")) is None
    assert AwayError.fault is FaultCode.STORE_UNREACHABLE


def test_an_error_without_a_code_has_that_of_its_cause_and_no_other() -> None:
    assert fault_of(wrapped(AwayError("x"), ValueError("y"))) is FaultCode.STORE_UNREACHABLE
    own = FaultError("y", fault=FaultCode.WRONG_VALUE)
    assert fault_of(wrapped(AwayError("x"), own)) is FaultCode.WRONG_VALUE
    try:
        raise AwayError("x")
    except AwayError:
        with pytest.raises(ValueError, match="y") as raised:
            raise ValueError("y")  # noqa: B904 - Of something else, by chance at the same time.
    assert fault_of(raised.value) is None


def test_an_error_that_says_what_another_says_has_its_code() -> None:
    error = FaultError.of(AwayError("x"))
    assert (str(error), error.fault) == ("x", FaultCode.STORE_UNREACHABLE)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (ErrorCode.SASL_AUTHENTICATION_FAILED, FaultCode.LOGIN_FAILED),
        (ErrorCode.UNSUPPORTED_VERSION, FaultCode.VERSION_MISMATCH),
        (ErrorCode.TOPIC_ALREADY_EXISTS, None),
    ],
)
def test_some_of_kafkas_codes_say_what_must_be_mended(
    code: ErrorCode, fault: FaultCode | None
) -> None:
    assert fault_of(KafkaError(code)) is fault


def test_a_sentence_ends_in_its_code_which_is_not_in_its_text() -> None:
    sentence = Sentence("the disk is full", FaultCode.DISK_FULL)
    assert told(sentence) == "the disk is full [disk-full]"
    assert str(AwayError(sentence)) == sentence == "the disk is full"
    assert coded(sentence) == {"code": "disk-full"}
    assert (told("hello"), coded("hello"), coded(None)) == ("hello", {}, {})


def test_an_error_that_comes_from_another_process_has_its_code() -> None:
    error = pickle.loads(pickle.dumps(AwayError("x", fault=FaultCode.STORE_DENIED)))
    assert fault_of(error) is FaultCode.STORE_DENIED


def test_every_code_says_what_it_means_what_clients_notice_and_what_to_do() -> None:
    assert list(FAULTS) == list(FaultCode)
    for fault in FAULTS.values():
        assert fault.means
        assert fault.clients
        assert len(fault.steps) >= 2
