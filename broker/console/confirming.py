"""What is said before something is done, and after it: confirmations, refusals, and what was done. Pure.

Somebody asks for a *confirmation*, which says in a sentence what will be done to what, and what nobody can undo; what
destroys something wants its name typed. Only the form on it does something. Then a page says what was done, in a
sentence that is found by its key (`DONE`), since an address is anybody's to write; or the confirmation comes again with
a *refusal*: why not, Kafka's code, and what to do.

Called by `broker.console.pages` and whatever acts (`broker.console.actions`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, KafkaError

SHOWN_MAX: Final = 249
"""Characters of a name in a sentence."""
TYPED: Final = "typed"
"""The field of a form into which the name is typed."""


class FormField(NamedTuple):
    """What somebody is to say in a form."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    """As HTML's `type`; or `select`."""
    options: tuple[tuple[str, str], ...] = ()
    """Of a `select`: values and what they are called."""
    hint: str = ""
    is_required: bool = True


class Confirmation(NamedTuple):
    """A page that asks before something is done."""

    title: str
    sentence: str
    """What will be done to what."""
    button: str
    path: str
    """Where the form goes."""
    back: str
    """The page to go back to."""
    warning: str = ""
    """What cannot be undone."""
    typed: str = ""
    """What must be typed; "": nothing."""
    fields: tuple[FormField, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """A table of what is about to change, with its head first."""
    is_question: bool = False
    """Its form only asks for another confirmation, and does nothing."""


class Done(NamedTuple):
    """What was done."""

    path: str
    """The page to go on to, without the sentence."""
    key: str
    """Of DONE."""
    of: str


class RefusalError(Exception):
    """It was not done, or will not be. The sentence says why, with Kafka's code, and what to do."""


DONE: Final[Mapping[str, str]] = {
    "topic-created": "Topic {} was created.",
    "topic-deleted": "Topic {} was deleted.",
    "topic-grown": "Topic {} has got its new partitions.",
    "topic-config": "The config {} was changed.",
    "group-deleted": "Group {} was deleted.",
    "group-reset": "The offsets of group {} were reset.",
    "member-removed": "Member {} was removed.",
    "transaction-aborted": "The transaction of {} was aborted.",
}

ADVICE: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "It may be gone: look at the list.",
    ErrorCode.UNKNOWN_TOPIC_ID: "The topic that this page showed is gone: look at the list.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "Wait until this agent is ready, or ask another one.",
    ErrorCode.REQUEST_TIMED_OUT: "It may still be done: look again before you repeat it.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "Try again in a moment.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Another agent is about to coordinate it: try again in a moment.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Choose another name.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The member has left already, or has another id by now.",
    ErrorCode.UNSUPPORTED_VERSION: "Upgrade the agents that are older first.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name.",
    ErrorCode.INVALID_PARTITIONS: "Say another number.",
    ErrorCode.INVALID_CONFIG: "Say another value.",
    ErrorCode.NOT_CONTROLLER: "Wait until this agent is ready, or ask another one.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "Its producer has begun anew: look again.",
    ErrorCode.NON_EMPTY_GROUP: "Stop its consumers, or remove its members, and try again.",
    ErrorCode.GROUP_ID_NOT_FOUND: "It may be gone: look at the list.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Set delete.topic.enable to true first.",
}
_REASONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.REQUEST_TIMED_OUT: "The metadata log has not answered in time.",
    ErrorCode.NOT_COORDINATOR: "Another agent coordinates the group.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has no such member.",
    ErrorCode.NON_EMPTY_GROUP: "The group has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
}


def refusal_of(error: KafkaError, *, advice: str = "") -> RefusalError:
    """What Kafka's clients would be told, for people. `advice`: instead of that of all errors of its code."""
    reason = error.message or _REASONS.get(error.code, "")
    said = f"{_ended(reason)} " if reason else ""
    told = advice or ADVICE.get(error.code, "")
    return RefusalError(f"{said}{error.code.name} ({error.code.value}). {told}".rstrip())


def check(code: int, message: str | None = None, *, advice: str = "") -> None:
    """Raises RefusalError for an error code that is one."""
    if code:
        raise refusal_of(KafkaError(ErrorCode(code), message or ""), advice=advice)


def check_typed(confirmation: Confirmation, typed: str) -> None:
    """Raises RefusalError where the name was to be typed, and was not."""
    if confirmation.typed and typed != confirmation.typed:
        raise RefusalError(f"Nothing was done: type “{confirmation.typed}” to confirm it.")


def done_sentence(key: str, of: str) -> str:
    """What stands on the page that one goes on to; "": nothing was done."""
    sentence = DONE.get(key, "")
    return sentence.format(f"“{of[:SHOWN_MAX]}”") if sentence else ""


def counted(number: int, one: str, many: str = "") -> str:
    """`1 partition`, `1,200 partitions`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _ended(sentence: str) -> str:
    sentence = sentence[:1].upper() + sentence[1:]
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
