"""Planted bugs about who is let in, and what is sent in clear, are found."""

import random
from typing import Any

import pytest

from broker.edge.tls_transport import TlsTransport
from broker.rights.authorizer import Authorizer
from broker.sasl import tokens
from broker.sasl.plain import PlainUsers
from protocol import apis, messages
from protocol.framing import request_frame
from tests.fuzz import grammar
from tests.fuzz.campaign import Campaign
from tests.fuzz.target import Target
from tests.fuzz.targets.bearer import Bearer
from tests.fuzz.targets.logins import Logins
from tests.fuzz.targets.tls import Kind, Step, Tls
from tests.fuzz.verdict import Checker


def found_by(target: Target, data: bytes) -> str:
    checker = Checker(target)
    with checker.listening():
        finding = checker.check(data, strict=False).finding
    return "" if finding is None else finding.text


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def asked(key: int, version: int, request: object) -> bytes:
    body = messages.encode_request(key, version, request)
    return request_frame(key, version, 1, "client", body)


LOGIN = asked(apis.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest(mechanism="PLAIN")) + asked(
    apis.SASL_AUTHENTICATE, 1, messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
)
CREATE = framed(b"login:alice") + asked(
    apis.CREATE_TOPICS,
    7,
    messages.CreateTopicsRequest(
        topics=[messages.CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
        timeout_ms=1000,
    ),
)


def test_somebody_who_is_let_in_with_a_wrong_password_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found_by(Logins(), LOGIN) == ""
    monkeypatch.setattr(PlainUsers, "knows", lambda self, user, password: True)
    assert "was let in without a password" in found_by(Logins(), LOGIN)


def test_somebody_who_is_let_in_by_a_token_that_nobody_signed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    campaign = Campaign(Bearer(), seed=1, strict=False)
    campaign.run(until=float("inf"), count_max=400)
    assert not campaign.found
    claims = tokens._parts

    def unchecked(token: str, _keys: object) -> Any:
        return tokens._json(claims(token)[1])

    monkeypatch.setattr(tokens, "_signed_claims", unchecked)
    campaign = Campaign(Bearer(), seed=1, strict=False)
    campaign.run(until=float("inf"), count_max=400)
    assert any("that nobody signed" in each.finding.text for each in campaign.found.values())


def test_something_that_is_changed_without_a_right_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found_by(Logins(), CREATE) == ""
    monkeypatch.setattr(Authorizer, "allows", lambda self, *asked: True)
    assert "has a right to was changed" in found_by(Logins(), CREATE)


def test_an_answer_that_leaves_in_clear_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    names = grammar.Names()
    frame = grammar.Writer(random.Random(1), names, hostility=0.0).frame(apis.METADATA, 9, 1)
    data = Step(Kind.SHAKE, 0, b"").encoded() + Step(Kind.SEAL, 0, frame).encoded()
    data += Step(Kind.WAIT, 1000, b"").encoded()
    assert found_by(Tls(), data) == ""

    def in_clear(self: TlsTransport, parts: list[bytes]) -> None:
        for part in parts:
            self._raw.write(bytes(part))

    monkeypatch.setattr(TlsTransport, "writelines", in_clear)
    assert "what is not TLS" in found_by(Tls(), data)
