"""What becomes of a proposal is told truthfully (P4)."""

import asyncio

import pytest

from broker.calls.outcomes import outcome_of
from coordinator.commands.entries import Done, Outcome
from coordinator.log.metadata_log import LogUnavailableError
from coordinator.proposer import NotDoneError
from protocol.errors import ErrorCode, KafkaError


def _told(settle) -> Outcome:
    """What is said of a proposal that `settle` may have settled; NOT_CONTROLLER: not done."""

    async def scenario() -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        settle(future)
        return outcome_of(future, ErrorCode.NOT_CONTROLLER)

    return asyncio.run(scenario())


@pytest.mark.promise("P4")
@pytest.mark.parametrize(
    "settle",
    [
        pytest.param(lambda _future: None, id="not yet settled"),
        pytest.param(
            lambda future: future.set_exception(LogUnavailableError("the agent ended")),
            id="never to be known",
        ),
    ],
)
def test_a_proposal_in_doubt_is_said_to_have_timed_out(settle) -> None:
    with pytest.raises(KafkaError) as error:
        _told(settle)
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_only_what_did_not_happen_and_will_not_is_given_a_definite_error() -> None:
    with pytest.raises(KafkaError) as error:
        _told(lambda future: future.set_exception(NotDoneError("no session")))
    assert error.value.code == ErrorCode.NOT_CONTROLLER


def test_the_outcome_of_a_proposal_that_is_applied_is_passed_on() -> None:
    assert _told(lambda future: future.set_result(Done())) == Done()
