"""Rights of requests, from their declarations: what is refused, and what is left to be handled.

Asked of the dispatcher before a handler sees a request, so before topics are looked up, barriers
waited for, or anything is created: who may not see a topic cannot tell whether it exists. Only a
topic that is named by its id has to be looked up first, behind a barrier if need be, as rights are
about names; an id that is unknown is called unknown, as in Kafka.

An API whose rights are about parts of its requests has a `narrow` (`broker.api.Cold`), mostly made
here (`each_of`); otherwise a right that is missing refuses the whole (`refused`). Produce, Fetch and
Heartbeat, which are parsed by hand, ask by themselves.

Left out: what the decisions are (`broker.rights`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeVar

from broker.api import Api, Cold, ErrorResponse, Narrow, Narrowed, Operation, Resource, Right
from broker.calls.call import Call, api_name
from broker.config import topic_configs
from broker.node import Node
from broker.rights.audit import told_names
from broker.rights.rights import Rights
from protocol.acls import CLUSTER_NAME
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TOPIC_ID_ZERO, TopicId

ResponseT = TypeVar("ResponseT")

CODES: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Resource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    Resource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_WORDS: Final = {
    Resource.TOPIC: "Topic authorization failed.",
    Resource.GROUP: "Group authorization failed.",
    Resource.CLUSTER: "Cluster authorization failed.",
    Resource.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
    Resource.DELEGATION_TOKEN: "Delegation Token authorization failed.",
    Resource.USER: "Delegation Token authorization failed.",
}

OWN_CONFIGS: Final = Right(Operation.ALTER_CONFIGS, Resource.CLUSTER)
"""Asked for where a topic gets a config that is Frazil's own: tables and checks cost the cluster's
owner, and one topic's owner may not spend that."""

TOLD_MAX: Final = 1_000
"""Names, and error codes, of one request that the audit looks at."""
REFUSED_MAX: Final = 5_000
"""Elements of one request; of more the whole is refused, as telling of each would take too long."""


def refusal_for(resource: Resource) -> KafkaError:
    """What is said of a resource of this type to whom has no right to it."""
    return KafkaError(CODES[resource], _WORDS[resource])


class Asker:
    """Who asks, in one request."""

    __slots__ = ("_api", "_requester", "_rights")

    def __init__(self, rights: Rights, call: Call) -> None:
        self._rights = rights
        self._requester = call.connection.requester
        self._api = api_name(call.api_key)

    def allows(self, right: Right, name: str) -> bool:
        """Whether the right, or what does instead, is there; of a refusal nothing is told."""
        each: Right | None = right
        while each is not None:
            named = CLUSTER_NAME if each.resource is Resource.CLUSTER else name
            if self._rights.allows(self._requester, each.operation, each.resource, named):
                return True
            each = each.instead
        return False

    def allows_some(self, right: Right) -> bool:
        """Whether there may be a resource for which the right is there."""
        return self._rights.allows_some(self._requester, right.operation, right.resource)

    def permits(self, right: Right, name: str) -> bool:
        """As `allows`; a refusal is told."""
        if self.allows(right, name):
            return True
        self.refused(right, name)
        return False

    def refused(self, right: Right, name: str) -> None:
        """Tell that a right was not there: of several that would do, one to what was named."""
        each: Right | None = right
        while each is not None and each.resource is Resource.CLUSTER:
            each = each.instead
        told = each or right
        named = CLUSTER_NAME if told.resource is Resource.CLUSTER else name
        self._rights.refused(self._requester, self._api, told.operation, told.resource, named)

    def require(self, right: Right, name: str) -> None:
        """Raises KafkaError when the right is not there."""
        if not self.permits(right, name):
            raise refusal_for(right.resource)

    def require_all(self, rights: Iterable[Right], request: Any) -> None:
        """Raises KafkaError when one of these is not there for all that the request names."""
        for right in rights:
            if right.resource is Resource.CLUSTER:
                self.require(right, CLUSTER_NAME)
            for path in right.paths:
                for name in named(request, path):
                    if name is not None:
                        self.require(right, name)

    def operations(self, resource: Resource, name: str) -> int:
        """What may be done to the resource, as bits (KIP-430)."""
        return self._rights.operations(self._requester, resource, name)


def asker(node: Node, call: Call) -> Asker | None:
    """None: there is no authorizer."""
    return None if node.rights is None else Asker(node.rights, call)


def permits(node: Node, call: Call, right: Right, name: str) -> bool:
    """Whether the right is there, as it always is without an authorizer; a refusal is told."""
    return node.rights is None or Asker(node.rights, call).permits(right, name)


def cluster_operations(node: Node, call: Call, every: int) -> int:
    """The authorized operations of the cluster: none for whom may not even DESCRIBE it. `every`:
    those that there are."""
    if node.rights is None:
        return every
    asks = Asker(node.rights, call)
    operations = asks.operations(Resource.CLUSTER, CLUSTER_NAME)
    return operations if operations >> 8 & 1 else 0


def check_own_configs(node: Node, call: Call, names: Iterable[str]) -> None:
    """Raises KafkaError when one of these configs of a topic, which are to change, is Frazil's own,
    and the right to that is missing (`OWN_CONFIGS`)."""
    own = [name for name in names if name.startswith(topic_configs.OWN_PREFIX)]
    if own and not permits(node, call, OWN_CONFIGS, CLUSTER_NAME):
        reason = f"{own[0]} needs ALTER_CONFIGS on the cluster beside the right to the topic."
        raise KafkaError(CODES[Resource.CLUSTER], reason)


def named(request: Any, path: str) -> Iterator[Any]:
    """What a request names, as `Right.paths` say where."""
    part, _, rest = path.partition(".")
    value = getattr(request, part.removesuffix("[]"))
    for each in (value or ()) if part.endswith("[]") else (value,):
        if rest:
            yield from named(each, rest)
        else:
            yield each


async def narrow(node: Node, call: Call, api: Api, handler: Cold, request: Any) -> Narrowed:
    """What is left of a request. Raises KafkaError for a refusal of all, LogError."""
    if handler.narrow is not None:
        return await handler.narrow(node, call, request)
    check_whole(node, call, api, request)
    return Narrowed(request)


def check_whole(node: Node, call: Call, api: Api, request: Any) -> None:
    """Raises KafkaError when a right is missing of those that are about all of a request."""
    if node.rights is not None:
        Asker(node.rights, call).require_all(api.rights, request)


def each_of(
    rights: Sequence[Right], among: str, name: str, *, answers: str, refusal: ErrorResponse
) -> Narrow:
    """Returns what narrows requests whose last right is about each element of a list.

    `among`: the request's field of the list, `name`: the element's field, "" if it is a name itself;
    `answers`: the response's field of the same. Elements may name topics by id instead.
    """
    *whole, of_each = rights

    async def narrowed(node: Node, call: Call, request: Any) -> Narrowed:
        assert node.rights is not None
        asks = Asker(node.rights, call)
        asks.require_all(whole, request)
        elements = getattr(request, among) or ()
        topics = node.log_client.machine.topics
        if any(topic_id and topics.by_id(topic_id) is None for topic_id in map(_id_of, elements)):
            await node.log_client.barrier()
        left: list[Any] = []
        refused: dict[ErrorCode, list[Any]] = {}
        async for element in node.slices.of(call).over(elements):
            known = _name_of(node, element, name)
            if known is None:
                refused.setdefault(ErrorCode.UNKNOWN_TOPIC_ID, []).append(element)
            elif asks.permits(of_each, known):
                left.append(element)
            else:
                refused.setdefault(CODES[of_each.resource], []).append(element)
        if not refused:
            return Narrowed(request)
        error = refusal_for(of_each.resource)
        if sum(map(len, refused.values())) > REFUSED_MAX:
            raise error

        def complete(response: Any) -> Any:
            for code, some in refused.items():
                told = error if code is error.code else KafkaError(code)
                part = refusal(call, replace(request, **{among: some}), told)
                response = joined(response, part, answers)
            return response

        return Narrowed(replace(request, **{among: left}) if left else None, complete)

    return narrowed


def joined(response: ResponseT | None, part: ResponseT, answers: str) -> ResponseT:
    """The response with the answers of another one behind its own."""
    if response is None:
        return part
    getattr(response, answers).extend(getattr(part, answers))
    return response


def _id_of(element: Any) -> TopicId | None:
    """The id by which an element names its topic, if it does."""
    topic_id: TopicId | None = getattr(element, "topic_id", None)
    return None if topic_id == TOPIC_ID_ZERO else topic_id


def _name_of(node: Node, element: Any, field: str) -> str | None:
    """None: it names a topic by an id that nobody knows."""
    if (topic_id := _id_of(element)) is not None:
        topic = node.log_client.machine.topics.by_id(topic_id)
        return None if topic is None else topic.name
    name: str = getattr(element, field) if field else element
    return name


def tell_change(node: Node, call: Call, api: Api, request: Any, response: Any) -> None:
    """Have the audit tell of a change by an administrator, if there is an authorizer."""
    if node.rights is None or not api.is_audited:
        return
    paths = {path for right in api.rights for path in right.paths}
    names = [each for path in sorted(paths) for each in islice(named(request, path), TOLD_MAX)]
    shown = [name if isinstance(name, str) else bytes(name).hex() for name in names if name]
    fields = {
        "operations": sorted({right.operation.name for right in api.rights}),
        "resources": sorted({right.resource.name for right in api.rights}),
        "names": told_names(shown),
        "errors": sorted({_word(code) for code in islice(errors_of(response), TOLD_MAX) if code}),
    }
    node.rights.changed(call.connection.requester, api.name, fields)


def errors_of(shape: Any) -> Iterator[int]:
    """The error codes in a response, wherever they are."""
    if isinstance(shape, list):
        for each in shape:
            yield from errors_of(each)
    elif hasattr(shape, "__dataclass_fields__"):
        for field in shape.__dataclass_fields__:
            value = getattr(shape, field)
            if field.endswith("error_code"):
                yield value
            else:
                yield from errors_of(value)


def _word(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
