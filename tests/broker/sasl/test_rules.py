"""What the settings of a listener's mechanisms mean, and which are mistakes."""

import pytest

from broker.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from broker.sasl.plain import PlainExchange
from broker.sasl.rules import rules_of
from broker.sasl.scram import ScramExchange
from coordinator.tables.administration.credentials import Credentials

PLAIN = {"sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";'}


def test_mechanisms_are_told_in_the_order_of_the_setting():
    rules = rules_of({"SCRAM-SHA-512": {}, "PLAIN": PLAIN, "SCRAM-SHA-256": {}})
    assert rules.mechanisms == ("SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256")
    assert rules.plain_users.knows("alice", "secret")
    assert rules.frame_bytes_max == 524_288


def test_a_session_lasts_as_long_as_its_mechanism_says():
    rules = rules_of({"PLAIN": PLAIN | {"connections.max.reauth.ms": "5000"}, "SCRAM-SHA-256": {}})
    assert rules.lifetime_ms("PLAIN") == 5_000
    assert rules.lifetime_ms("SCRAM-SHA-256") == 0


def test_frames_before_authentication_are_as_large_as_the_setting_says():
    assert rules_of({"PLAIN": PLAIN | {"sasl.server.max.receive.size": "9"}}).frame_bytes_max == 9


def test_each_mechanism_has_its_exchange():
    rules = rules_of({"SCRAM-SHA-512": {}, "PLAIN": PLAIN})
    table = Credentials()
    assert isinstance(rules.exchange("PLAIN", table, nonce="x"), PlainExchange)
    assert isinstance(rules.exchange("SCRAM-SHA-512", table, nonce="x"), ScramExchange)


@pytest.mark.parametrize(
    ("mechanisms", "sentence"),
    [
        ({}, "none is enabled"),
        ({"GSSAPI": {}}, "GSSAPI: it is not served"),
        ({"PLAIN": {}}, "its users stand there"),
        ({"PLAIN": {"sasl.jaas.config": f"{PLAIN_MODULE} required;"}}, "no user"),
        ({"PLAIN": {"sasl.jaas.config": f"{SCRAM_MODULE} required;"}}, "login module is org"),
        ({"SCRAM-SHA-256": PLAIN}, "login module is org"),
        ({"SCRAM-SHA-256": {"sasl.jaas.config": "nonsense"}}, "begin with a class"),
        ({"PLAIN": PLAIN | {"connections.max.reauth.ms": "soon"}}, "max.reauth.ms: "),
        ({"PLAIN": PLAIN | {"sasl.server.max.receive.size": "-1"}}, "receive.size: "),
        ({"PLAIN": PLAIN | {"sasl.server.callback.handler.class": "a.B"}}, "classes of Java"),
    ],
)
def test_a_mistake_is_told_without_secrets(mechanisms, sentence):
    with pytest.raises(ValueError, match=sentence) as told:
        rules_of(mechanisms)
    assert "secret" not in str(told.value)


def test_all_mistakes_are_told_together():
    with pytest.raises(ValueError, match=r"GSSAPI.*\n.*its users stand"):
        rules_of({"GSSAPI": {}, "PLAIN": {}})


def test_rules_are_shown_without_passwords():
    assert "secret" not in repr(rules_of({"PLAIN": PLAIN}))
