"""Which agent is asked, how often, and what becomes of answers that do not come whole."""

from typing import Any

import pytest

from iceberg_export.errors import AgentError
from iceberg_export.plan.agent_client import (
    PAUSE_S_MAX,
    ROUNDS,
    ROUNDS_OF_STREAMS,
    AgentClient,
)
from tests.iceberg_export.kit.http import Asked, killed_while_it_answers, served

TOPICS = {"cluster_id": "c", "topics": []}


class Agent:
    """Answers, or is not ready, and counts how often it was asked."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.asked = 0

    def respond(self, _asked: Asked) -> tuple[int, Any]:
        self.asked += 1
        return self.status, TOPICS


def client(*addresses: str, pauses: list[float] | None = None, rounds: int = ROUNDS) -> AgentClient:
    sleep = (pauses if pauses is not None else []).append
    return AgentClient(addresses, timeout_ms=5000, sleep=sleep, rounds=rounds)


@pytest.mark.parametrize("sent", [0, 1, 10])
def test_an_answer_that_breaks_off_is_asked_of_the_next_agent(sent: int) -> None:
    other = Agent()
    with killed_while_it_answers(b'{"cluster_id": "another"}', sent) as here:
        with served(other) as there:
            assert client(here, there).topics().cluster_id == "c"
        with pytest.raises(AgentError, match=f"no agent answers .*{here}: its answer broke off"):
            client(here).topics()


def test_an_address_that_can_be_nobodys_is_told_and_the_next_agent_is_asked() -> None:
    with pytest.raises(AgentError, match=r"no agent answers \(http://agent\.\.svc:9094: .*label"):
        client("http://agent..svc:9094").topics()
    with served(Agent()) as there:
        assert client("http://agent..svc:9094", there).topics().cluster_id == "c"


def test_an_agent_that_did_not_answer_is_asked_after_the_others_from_then_on() -> None:
    first, second = Agent(503), Agent()
    with served(first) as here, served(second) as there:
        asks = client(here, there)
        for _ in range(3):
            asks.topics()
        assert (first.asked, second.asked) == (1, 3)
        first.status, second.status = 200, 503
        asks.topics()
        assert (first.asked, second.asked) == (2, 4)


def test_a_stream_waits_a_minute_for_agents_and_everybody_else_a_moment() -> None:
    agent, pauses = Agent(503), []
    with served(agent) as here:
        for rounds, seconds in ((ROUNDS, 3.0), (ROUNDS_OF_STREAMS, 60.0)):
            pauses.clear()
            agent.asked = 0
            with pytest.raises(AgentError, match="no agent answers"):
                client(here, pauses=pauses, rounds=rounds).topics()
            assert (agent.asked, sum(pauses)) == (rounds, seconds)
            assert max(pauses) <= PAUSE_S_MAX
