"""Whoever has not logged in yet may send messages of half a MiB: none keeps the loop busy for long."""

import time

import pytest

from broker.sasl.bearer import BearerExchange
from broker.sasl.exchange import Challenge, Exchange
from broker.sasl.plain import PlainExchange, PlainUsers
from broker.sasl.rules import FRAME_BYTES_MAX
from broker.sasl.scram import ScramExchange
from broker.sasl.scram_keys import BY_NAME
from broker.sasl.tokens import TokenRules
from coordinator.tables.administration.credentials import Credentials

SIZE = FRAME_BYTES_MAX - 100
CPU_S_MAX = 0.03
"""Of the thread; most take a tenth of it."""
BEARER = {
    "a token": b"n,,\x01auth=Bearer " + b"a" * SIZE + b"\x01\x01",
    "many pairs": b"n,,\x01" + b"a=b\x01" * (SIZE // 4) + b"auth=Bearer x\x01\x01",
    "many pairs and no end": b"n,,\x01" + b"a=b\x01" * (SIZE // 4) + b"x",
    "a name without an end": b"n,,\x01" + b"a" * SIZE,
    "a value without an end": b"n,,\x01a=" + b"b" * SIZE,
    "an authorization id": b"n,a=" + b"b" * SIZE + b",\x01x",
    "an authorization id of commas": b"n,a=" + b"=2C" * (SIZE // 3) + b",\x01x",
    "blanks before the token": b"n,,\x01auth=Bearer" + b" " * SIZE + b"!\x01\x01",
    "blanks behind the token": b"n,,\x01auth=Bearer x" + b" " * SIZE + b"!\x01\x01",
}
SCRAM_FIRST = {
    "a user": b"n,,n=" + b"a" * SIZE + b",r=x",
    "a user without an end": b"n,,n=" + b"a" * SIZE,
    "a user of commas": b"n,,n=" + b"=2C" * (SIZE // 3) + b",r=x",
    "a nonce": b"n,,n=a,r=" + b"x" * SIZE,
    "many extensions": b"n,,n=a,r=x" + b",a=b" * (SIZE // 4),
    "many extensions and no end": b"n,,n=a,r=x" + b",a=b" * (SIZE // 4) + b",a",
}
SCRAM_FINAL = {
    "a binding": b"c=" + b"b" * SIZE + b",r=x,p=AAAA",
    "many extensions": b"c=biws,r=xserver" + b",a=b" * (SIZE // 4) + b",p=AAAA",
    "many proofs": b"c=biws,r=xserver" + b",p=A" * (SIZE // 4) + b",p=!",
    "a proof": b"c=biws,r=xserver,p=" + b"A" * SIZE,
}
PLAIN = {"a password": b"\0alice\0" + b"a" * SIZE, "nothing": b"\0" * SIZE}


def took(exchange: Exchange, message: bytes) -> float:
    begun = time.thread_time()
    exchange.respond(message)
    return time.thread_time() - begun


def scram() -> ScramExchange:
    return ScramExchange(BY_NAME["SCRAM-SHA-512"], Credentials(), nonce="server")


@pytest.mark.parametrize("kind", BEARER)
def test_of_oauthbearer(kind: str) -> None:
    exchange = BearerExchange(TokenRules(keys=None), now_ms=lambda: 0)
    assert took(exchange, BEARER[kind]) < CPU_S_MAX


@pytest.mark.parametrize("kind", SCRAM_FIRST)
def test_of_scram_first(kind: str) -> None:
    assert took(scram(), SCRAM_FIRST[kind]) < CPU_S_MAX


@pytest.mark.parametrize("kind", SCRAM_FINAL)
def test_of_scram_then(kind: str) -> None:
    exchange = scram()
    assert isinstance(exchange.respond(b"n,,n=a,r=x"), Challenge)
    assert took(exchange, SCRAM_FINAL[kind]) < CPU_S_MAX


@pytest.mark.parametrize("kind", PLAIN)
def test_of_plain(kind: str) -> None:
    assert took(PlainExchange(PlainUsers.of({"alice": "x"})), PLAIN[kind]) < CPU_S_MAX
