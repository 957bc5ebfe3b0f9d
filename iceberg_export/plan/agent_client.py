"""The agents' admin endpoints, as the exporter uses them: topics, plans, pins.

Any agent will do; addresses are tried in turn, a few rounds, and then the error names all of
them. One that did not answer is asked after the others from then on. The standard library is
enough: requests are few, and answers are JSON. Nobody is sent on to another address, and what a
plan says of the store is checked by `trust`.
"""

import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from typing_extensions import override

from iceberg_export.errors import AgentError, ExportError, PlanError
from iceberg_export.plan.splits import PartitionPlan, TopicPlan, join_parts, merge_plans, parse_plan
from iceberg_export.plan.trust import NOT_PINNED, PinnedStore, check_store
from iceberg_export.table.topic_settings import PREFIX
from protocol.fault_codes import FaultCode, FaultError, Sentence, fault_of

ROUNDS = 3
ROUNDS_OF_STREAMS = 15
"""For a minute, as Kafka's clients do: a query that goes on for days is not to end with a restart of agents."""
PAUSE_S = 1.0
PAUSE_S_MAX = 5.0
PLANS_IN_FLIGHT = 8
RETRIABLE_STATUS = frozenset({429, 500, 502, 503, 504})
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""A plan of 5000 spans in each of 1000 partitions has fewer."""
ERROR_BYTES_MAX = 64 * 1024


_CODES = frozenset(FaultCode)


class _NoRedirects(HTTPRedirectHandler):
    """Agents send nobody on: an answer from elsewhere is not the agent's."""

    @override
    def redirect_request(self, *_arguments: Any) -> None:
        return None


class Topic(NamedTuple):
    name: str
    topic_id: str
    partition_count: int
    configs: Mapping[str, str] = {}
    """Effective `frazil.iceberg.*`, as the agent tells them; for `topic_settings.parse`."""
    exported: Mapping[int, int] = {}
    """What was last reported as exported, by partition: advice, the table knows."""
    with_default_tables: frozenset[str] = frozenset()
    """All topics of the cluster that are exported and choose no table by their configs."""
    registry: str = ""
    """Where the agents' schema registry is, as the agent tells it; "" when it has none."""
    route: str = ""
    """One table of a topic that has several (`routes`), as `route.tables` names it; "": the topic's own."""

    @property
    def key(self) -> tuple[str, str]:
        """Tells exports apart: of a topic, and of each of its tables."""
        return self.topic_id, self.route

    @property
    def title(self) -> str:
        """What people are told that the export is of."""
        return f"{self.name} ({self.route})" if self.route else self.name


class Topics(NamedTuple):
    cluster_id: str
    topics: tuple[Topic, ...]


BEYOND_ALL = 1 << 62
"""No log is so long: a plan from there on has no rows, only where the log starts and ends."""


class TableSource(NamedTuple):
    """A snapshot of a table."""

    table: str
    snapshot_id: int


class AgentClient:
    """Sends requests to whichever agent answers. `sleep` waits seconds between rounds."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        timeout_ms: int,
        sleep: Callable[[float], None],
        store: PinnedStore = NOT_PINNED,
        token: Callable[[], str | None] = lambda: None,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
        rounds: int = ROUNDS,
    ) -> None:
        """`token`: what agents want to hear; None: nothing. `context`: whom to trust behind https, and
        what to show; None: whom the system trusts. Both are asked for each request. `rounds`: how often
        all are asked before none answers."""
        for address in addresses:
            if urlsplit(address).scheme not in {"http", "https"} or not urlsplit(address).netloc:
                raise AgentError(f"agent {address!r} is not an address like http://host:9094")
        if not addresses:
            raise AgentError("no agent is named; set agent=http://host:9094")
        self._addresses = list(addresses)
        self._order = list(dict.fromkeys(addresses))
        """As they are asked."""
        self._rounds = rounds
        self._timeout_s = timeout_ms / 1000
        self._sleep = sleep
        self._store = store
        self._token = token
        self._context = context
        self._trusting = context()
        self._open = _opener_of(self._trusting)

    def topics(self) -> Topics:
        """Returns all topics of the cluster. Raises AgentError."""
        answer = self._call("GET", "/export/topics")
        try:
            topics = [
                Topic(
                    str(one["name"]),
                    str(one["topic_id"]),
                    int(one["partitions"]),
                    {str(name): str(value) for name, value in one.get("configs", {}).items()},
                    {int(part): int(at) for part, at in one.get("exported", {}).items()},
                )
                for one in answer["topics"]
            ]
            defaults = frozenset(one.name for one in topics if _has_default_table(one.configs))
            registry = str(answer.get("registry") or "")
            return Topics(
                str(answer["cluster_id"]),
                tuple(
                    one._replace(with_default_tables=defaults, registry=registry) for one in topics
                ),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AgentError("the agent's list of topics cannot be read") from error

    def plan(
        self,
        topic: Topic,
        offsets: Mapping[int, int],
        *,
        bytes_enough: int | None = None,
        beyond: Mapping[int, int] = MappingProxyType({}),
    ) -> TopicPlan:
        """Returns where records from `offsets` on lie; from the log's start for partitions without.

        Agents tell only so many spans at a time. Of each partition as many are asked for as have
        `bytes_enough`, and reach behind the offset `beyond`; None: all. Raises AgentError, and PlanError when the topic is not the one
        it was.
        """
        with ThreadPoolExecutor(PLANS_IN_FLIGHT) as pool:
            if not offsets:
                plan = self._plan(topic)
            else:
                numbers = range(topic.partition_count)
                plan = merge_plans(
                    pool.map(lambda one: self._plan(topic, one, offsets.get(one, 0)), numbers)
                )
            parts = pool.map(
                lambda part: self._extend_plan(
                    topic, part, bytes_enough, beyond.get(part.partition, -1)
                ),
                plan.partitions.values(),
            )
            return plan._replace(partitions={part.partition: part for part in parts})

    def _plan(self, topic: Topic, partition: int | None = None, start: int = 0) -> TopicPlan:
        path = f"/export/plan?{urlencode({'topic': topic.name})}"
        if partition is not None:
            path += f"&partition={partition}&from={start}"
        plan = self._parsed(self._call("GET", path))
        if plan.topic_id != topic.topic_id:
            raise PlanError(f"topic {topic.name} was re-created just now; run again")
        return plan

    def _extend_plan(
        self, topic: Topic, part: PartitionPlan, bytes_enough: int | None, beyond: int
    ) -> PartitionPlan:
        """Fetches the plan of a partition as far as it is needed, in parts. Rows may move meanwhile:
        each part holds for its own offsets."""
        goal = part.stable
        while part.end < min(goal, part.stable):
            is_enough = bytes_enough is not None and part.byte_count >= bytes_enough
            if is_enough and part.end > beyond:
                break
            more = self._plan(topic, part.partition, part.end).partitions[part.partition]
            if more.end <= part.end:
                raise PlanError(
                    f"the plan of {topic.name} partition {part.partition} stands still at {part.end}"
                )
            part = join_parts(part, more)
        return part

    def plan_by_name(
        self,
        name: str,
        offsets: Mapping[int, int],
        *,
        others: int = 0,
        goal: Callable[[PartitionPlan], int] = lambda part: part.stable,
    ) -> TopicPlan:
        """Returns the plan of a topic whose id is not known yet: each partition from its offset on,
        those that have none from `others`, and as far as `goal` says.

        One request, unless there are more spans than one answer has: who reads what is fresh asks
        often, and agents are not to feel it. Raises AgentError, PlanError.
        """
        plan = self._joint(name, offsets, others)
        parts = dict(plan.partitions)
        goals = {number: min(goal(part), part.stable) for number, part in parts.items()}
        while behind := {n: one.end for n, one in parts.items() if one.end < goals[n]}:
            more = self._joint(name, behind, None)
            if more.topic_id != plan.topic_id:
                raise PlanError(f"topic {name} was re-created just now; run again")
            for number in behind:
                part = join_parts(parts[number], more.partitions[number])
                parts[number] = part
                goals[number] = min(goals[number], part.stable)
            if behind == {n: parts[n].end for n in behind if parts[n].end < goals[n]}:
                raise PlanError(f"the plan of {name} stands still at {behind}")
        return plan._replace(partitions=parts)

    def _joint(self, name: str, offsets: Mapping[int, int], others: int | None) -> TopicPlan:
        wanted = {str(number): offset for number, offset in offsets.items()}
        body = {"topic": name, "offsets": wanted, "others": others}
        return self._parsed(self._call("POST", "/export/plan", body))

    def _parsed(self, answer: Any) -> TopicPlan:
        plan = parse_plan(answer)
        check_store(plan.store, self._store, self._addresses)
        return plan

    def pin(self, name: str, lifetime_ms: int) -> int:
        """Keeps every object that is reachable now, for a while; returns the position kept."""
        answer = self._call("POST", "/export/pin", {"name": name, "lifetime_ms": lifetime_ms})
        try:
            return int(answer["position"])
        except (KeyError, TypeError, ValueError) as error:
            raise AgentError("the agent's answer to a pin cannot be read") from error

    def unpin(self, name: str) -> None:
        """Ends a pin."""
        self._call("DELETE", f"/export/pin/{quote(name, safe='')}")

    def report_progress(
        self,
        topic: Topic,
        offsets: Mapping[int, int],
        source: TableSource | None,
        dead_letters: Mapping[str, int] | None = None,
    ) -> None:
        """Reports how far the topic's table is: agents hold back retention by it, and alarm.

        `source`: what the offsets were read from; None when that cannot be told now. `dead_letters`: by
        reason, for people who look at an agent; None: they are not known now."""
        body: dict[str, Any] = {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "offsets": {str(partition): offset for partition, offset in offsets.items()},
        }
        if source is not None:
            body |= source._asdict()
        if dead_letters is not None:
            body["dead_letters"] = dict(dead_letters)
        self._call("POST", "/export/progress", body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        failures: dict[str, str] = {}
        fault: FaultCode | None = None
        for attempt in range(self._rounds):
            if attempt:
                self._sleep(min(PAUSE_S * attempt, PAUSE_S_MAX))
            for address in self._order:
                try:
                    return self._once(address, method, path, body)
                except _TryAnotherError as error:
                    failures[address], fault = str(error), error.fault
                    # One that hangs would cost each request `agent.timeout.ms`.
                    self._order = [*(one for one in self._order if one != address), address]
        tried = "; ".join(f"{address}: {failures[address]}" for address in self._addresses)
        said = f"no agent answers ({tried}); set agent=http://host:9094 to a live one"
        raise AgentError(said, fault=fault or FaultCode.CLUSTER_UNREACHABLE)

    def _opener(self) -> Callable[..., Any]:
        """What sends requests, trusting whom is to be trusted now. Raises SettingsError."""
        context = self._context()
        if context is not self._trusting:
            self._trusting, self._open = context, _opener_of(context)
        return self._open

    def _once(self, address: str, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = Request(  # noqa: S310 - the scheme was checked above.
            address + path, data, {"Content-Type": "application/json"}, method=method
        )
        if (token := self._token()) is not None:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with self._opener()(request, timeout=self._timeout_s) as response:
                text = response.read(ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            message = _error_text(error.read(ERROR_BYTES_MAX))
            fault = fault_of(message)
            if error.code in RETRIABLE_STATUS:
                said = f"HTTP {error.code} {message}".strip()
                raise _TryAnotherError(said, fault=fault) from error
            raise AgentError(
                f"agent {address} refuses {path.split('?', maxsplit=1)[0]}: {message or error.reason}",
                fault=fault,
            ) from error
        except (URLError, HTTPException, OSError, UnicodeError) as error:
            # (The last of a name that can be nobody's, like a..b.)
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, ssl.SSLCertVerificationError):
                said = (
                    f"its certificate is not trusted ({reason.verify_message}): is agent.ca right?"
                )
                raise _TryAnotherError(said, fault=FaultCode.TLS_FAILED) from error
            if isinstance(reason, ssl.SSLError) and "ALERT" in (reason.reason or ""):
                told = reason.reason.replace("_", " ").lower()
                raise _TryAnotherError(
                    f"it refuses: {told} (agent.cert is what one shows)", fault=FaultCode.TLS_FAILED
                ) from error
            raise _TryAnotherError(str(getattr(reason, "strerror", None) or reason)) from error
        if len(text) > ANSWER_BYTES_MAX:
            raise AgentError(f"agent {address} answers with more than {ANSWER_BYTES_MAX} bytes")
        if response.length:
            # With a bound `read` returns what came before the connection ended, without a word.
            raise _TryAnotherError("its answer broke off")
        if not text:
            return {}
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise AgentError(
                f"{address} does not answer like an agent; is it another's port?"
            ) from (error)


def _opener_of(context: ssl.SSLContext | None) -> Callable[..., Any]:
    return build_opener(_NoRedirects, HTTPSHandler(context=context)).open


def _has_default_table(configs: Mapping[str, str]) -> bool:
    enabled = configs.get(f"{PREFIX}enable", "true").strip().lower() != "false"
    return enabled and not configs.get(f"{PREFIX}table", "").strip()


class _TryAnotherError(FaultError):
    """This agent cannot answer now."""


def _error_text(body: bytes) -> str:
    """Returns the message in an error's body: our JSON's, with its code, or the first line of the text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        return text.splitlines()[0][:200] if text else ""
    if not isinstance(found, dict):
        return ""
    message, code = str(found.get("error") or found.get("message") or ""), found.get("code")
    return Sentence(message, FaultCode(code)) if code in _CODES else message


class Pinned:
    """A pin held for the time of a `with` block, renewed from a thread of its own."""

    def __init__(self, client: AgentClient, name: str, lifetime_ms: int) -> None:
        self._client = client
        self._name = name
        self._lifetime_ms = lifetime_ms
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="pin", daemon=True)
        self.position = 0
        self.lost: str | None = None
        """Why the last renewal failed; chunks may be collected when the lifetime is over."""

    def __enter__(self) -> Self:
        self.position = self._client.pin(self._name, self._lifetime_ms)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        try:
            self._client.unpin(self._name)
        except ExportError as failure:
            # It expires by itself; a finished export must not fail for it.
            self.lost = str(failure)

    def _renew(self) -> None:
        while not self._ended.wait(self._lifetime_ms / 3000):
            try:
                self._client.pin(self._name, self._lifetime_ms)
                self.lost = None
            except ExportError as failure:
                # Of an agent, or of a file of its token that is being swapped: neither ends this thread.
                self.lost = str(failure)
