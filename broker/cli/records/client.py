"""librdkafka for the command line: its settings from the arguments, and its errors as sentences.

librdkafka tells what befalls its connections between calls; `Events` keeps that until somebody can say it. What may
pass by itself is waited for until the command's deadline, a refusal is not.
"""

import asyncio
import logging
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from broker.cli.arguments import (
    BOOTSTRAP_DEFAULT,
    FailedError,
    client_settings,
    complain,
    settings_file,
)
from broker.cli.records import connection_failures
from broker.client.bearer_tokens import BearerTokens
from broker.client.client_settings import ClientSettings
from broker.client.librdkafka_settings import librdkafka_settings
from broker.client.token_settings import BearerLogin
from broker.edge.key_stores import Material, TlsError, client_material_of
from broker.environment import boot_ms, now_ms
from broker.sasl.client import Login
from broker.sasl.login_failures import TokenError
from protocol.fault_codes import FaultCode, Sentence, fault_of

CLIENT_ID: Final = "frazil"
TOKEN_S: Final = 60
"""How long a token is taken to hold before it is asked for anew."""
_ATTEMPT_S: Final = 1.0
_PAUSE_S: Final = 0.1
_NO_LOGGER: Final = logging.Logger("librdkafka", logging.CRITICAL + 1)  # noqa: LOG001 - Nobody shares it.
_HEARD_MS: Final = 2000
"""Until then every broker has heard of a topic that was just made."""
_REFUSALS: Final = {
    KafkaError._AUTHENTICATION: FaultCode.LOGIN_FAILED,  # noqa: SLF001
    KafkaError._SSL: FaultCode.TLS_FAILED,  # noqa: SLF001
}
"""As long as nobody has answered; later it may be an agent that restarts."""


class Events:
    """What librdkafka told."""

    def __init__(self) -> None:
        self.bootstrap = ""
        """Whom it was told to ask."""
        self.has_tls = False
        """Whether it was told to."""
        self.harmless = frozenset[int]()
        """Codes of errors that do not matter."""
        self.refusal = ""
        """Why it goes no further; "" while it may."""
        self.reason = ""
        """Why the last connection was lost."""
        self._has_answered = self._is_down = self._is_told = False

    def told(self, error: KafkaError) -> None:
        sentence = connection_failures.sentence(error.str())
        if error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            # Of who wants to be idempotent: whoever may write to some topic may be that.
            sentence = "you may write to no topic (that is the right WRITE)"
        if error.fatal() or (error.code() in _REFUSALS and not self._has_answered):
            self.refusal = self.refusal or Sentence(sentence, _REFUSALS.get(error.code()))
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._is_down = True
        else:
            self.reason = sentence

    def answered(self) -> None:
        """The cluster is there."""
        self._has_answered = True
        self._is_down = self._is_told = False

    def is_lost(self) -> bool:
        """Tells once that no agent answers, until one has again."""
        is_new = self._is_down and not self._is_told
        self._is_told = self._is_told or is_new
        return is_new


def settings_of(options: Namespace, events: Events) -> dict[str, Any]:
    """Returns librdkafka's settings by the arguments of `add_cluster`, and `--property`. Raises FailedError,
    SettingsError."""
    file = settings_file(options)
    settings = ClientSettings() if file is None else client_settings(file)
    complain(options.name, *[f"{file}: {warning}" for warning in settings.warnings])
    bootstrap = (
        ",".join(map(str, options.bootstrap or ())) or settings.bootstrap or BOOTSTRAP_DEFAULT
    )
    events.bootstrap, events.has_tls = bootstrap, settings.tls is not None
    found = {
        **librdkafka_settings(bootstrap, settings, _material(settings, file)),
        "client.id": CLIENT_ID,
        "error_cb": events.told,
        "log_level": 0,
        # Fatal errors are logged at any level; they are told as all others are.
        "logger": _NO_LOGGER,
    }
    if isinstance(settings.login, Login) and settings.login.by_token:
        raise FailedError(
            f"{file}: records go by librdkafka, which does not log in by delegation tokens (tokenauth):"
            " use a user's file, or Java's clients"
        )
    if isinstance(settings.login, BearerLogin):
        tokens = BearerTokens(settings.login)
        extensions = dict(settings.login.extensions)
        found["oauth_cb"] = lambda _config: _token(tokens, extensions)
    return found | dict(options.property)


def _token(
    tokens: BearerTokens, extensions: dict[str, str]
) -> tuple[str, float, str, dict[str, str]]:
    try:
        token = asyncio.run(tokens.token())
    except TokenError as error:
        raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, str(error))) from error  # noqa: SLF001
    return token, now_ms() / 1000 + TOKEN_S, "", extensions


def _material(settings: ClientSettings, file: Path | None) -> Material | None:
    if settings.tls is None:
        return None
    try:
        return client_material_of(
            settings.tls.keystore, settings.tls.truststore, lambda place: Path(place).read_bytes()
        )
    except TlsError as error:
        raise FailedError(f"{file}: {error}") from error


Client = TypeVar("Client", Producer, Consumer)


def client_of(kind: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
    """Returns a producer or consumer. Raises FailedError for settings that librdkafka does not take."""
    try:
        return kind(settings)
    except KafkaException as error:
        raise FailedError(f"librdkafka: {error.args[0].str()}") from error


def partitions_of(
    client: Producer | Consumer, topic: str, events: Events, *, timeout_ms: int
) -> list[int]:
    """Returns a topic's partitions; waits for the cluster until the deadline. Raises FailedError."""
    began = boot_ms()
    while True:
        lasts_ms = timeout_ms
        try:
            found = client.list_topics(topic, timeout=_ATTEMPT_S).topics[topic]
        except KafkaException as error:
            problem = _cluster_problem(error.args[0], events)
        else:
            if found.error is None:
                events.answered()
                return sorted(found.partitions)
            problem = _topic_problem(topic, found.error)
            is_missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not (is_missing or found.error.retriable()):
                raise FailedError(problem)
            lasts_ms = min(_HEARD_MS, timeout_ms) if is_missing else timeout_ms
        client.poll(_PAUSE_S)
        if events.refusal:
            raise FailedError(events.refusal)
        if boot_ms() - began >= lasts_ms:
            text = f"{problem}{events.reason and f'; {events.reason}'}"
            raise FailedError(text, fault=fault_of(problem))


def _cluster_problem(error: KafkaError, events: Events) -> str:
    if error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):  # noqa: SLF001
        # Of a listener that wants TLS librdkafka says nothing: it is closed before anything was answered.
        hint = "" if events.has_tls else "; TLS and logins are for --command-config"
        text = f"no agent answers at {events.bootstrap}: is one running? (--bootstrap says where{hint})"
        return Sentence(text, FaultCode.CLUSTER_UNREACHABLE)
    return f"the cluster does not say which topics it has: {error.str()}"


def _topic_problem(topic: str, error: KafkaError) -> str:
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return f'there is no topic "{topic}" (frazil topic list shows all, frazil topic create makes one)'
    return f'topic "{topic}" cannot be used: {error.str()} ({error.name()})'


def arrived(consumer: Consumer, most: int, wait_s: float) -> list[Message]:
    """Returns what has come, waiting for the first of it only; librdkafka itself would wait for `most`."""
    first = consumer.poll(wait_s)
    if first is None:
        return []
    return [first, *consumer.consume(most - 1, 0)] if most > 1 else [first]
