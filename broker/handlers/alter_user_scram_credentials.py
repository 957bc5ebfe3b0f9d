"""AlterUserScramCredentials, v0: users of SCRAM are made, changed and deleted.

KIP-554. The request carries the salted password, with which anybody could log in. It becomes stored
key and server key here and at once, and goes no further: not into the log, not into a sentence.

A user who is named twice in whatever way is refused, and nothing of it is done; the others of the
request are each done or refused for themselves, deletions first. Agents know a change when they have
read it from the log, ms later. Sentences are Kafka's (ScramControlManager), as far as it has them.

Errors, per user: 7 (may still happen), 33, 35 (an older agent is live), 41 (no session: send it
elsewhere), 44 (no room), 91, 92, 93.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, forget, wait_for_changes
from broker.handler_support import live_incarnation, refuse_beside_older
from broker.node import Node
from broker.sasl.scram_keys import credential_of
from coordinator.commands.credential_commands import (
    CredentialCommand,
    DeleteScramCredential,
    ScramMechanism,
)
from coordinator.commands.rights_commands import RIGHTS_LEVEL
from coordinator.tables.administration.credentials import unacceptable
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

WAIT_MS: Final = 30_000
"""The request has no timeout of its own; this is Kafka's request.timeout.ms."""
CHANGE_ELEMENTS: Final = 20
"""What one user costs, in elements that are looked at."""
TWICE: Final = "A user credential cannot be altered twice in the same request"

_Change = ScramCredentialDeletion | ScramCredentialUpsertion


@dataclass(slots=True, kw_only=True)
class UserChange(RequestedChange):
    """What becomes of one user."""

    user: str


async def handle(
    node: Node, call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    refuse_beside_older(node, RIGHTS_LEVEL)
    changes: list[UserChange] = []
    counts = Counter(_names(request))
    for user, count in counts.items():
        if count > 1:
            error = KafkaError(ErrorCode.DUPLICATE_RESOURCE, TWICE)
            changes.append(UserChange(user=user, refused=error))
    turns = node.slices.of(call)
    for each in _changes(request):
        if counts[each.name] > 1:
            continue
        await turns.spend(CHANGE_ELEMENTS)
        change = UserChange(user=each.name)
        try:
            change.future = node.log_client.propose(_command(each), incarnation)
            forget(change.future)  # Its client may be gone before it is asked for.
        except KafkaError as error:
            change.refused = error
        changes.append(change)
    await wait_for_changes(changes, WAIT_MS)
    results = [_result(change) async for change in turns.over(changes)]
    return AlterUserScramCredentialsResponse(results=results)


def refusal(
    call: Call, request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(_names(request))
    return AlterUserScramCredentialsResponse(results=[_refused(user, error) for user in users])


API: Final = Api(
    key=apis.ALTER_USER_SCRAM_CREDENTIALS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
)


def _changes(request: AlterUserScramCredentialsRequest) -> list[_Change]:
    return [*request.deletions, *request.upsertions]


def _names(request: AlterUserScramCredentialsRequest) -> list[str]:
    return [each.name for each in _changes(request)]


def _command(change: _Change) -> CredentialCommand:
    """What to propose. Raises KafkaError."""
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(change, ScramCredentialDeletion):
        return DeleteScramCredential(change.name, mechanism)
    command = credential_of(
        change.name,
        mechanism,
        change.salted_password,
        salt=change.salt,
        iterations=change.iterations,
    )
    if (reason := unacceptable(command)) is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    return command


def _result(change: UserChange) -> AlterUserScramCredentialsResult:
    try:
        change.outcome(ErrorCode.NOT_CONTROLLER)
    except KafkaError as error:
        return _refused(change.user, error)
    return AlterUserScramCredentialsResult(user=change.user)


def _refused(user: str, error: KafkaError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user, error_code=error.code, error_message=error.message or None
    )
