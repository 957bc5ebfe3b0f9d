"""What is said of settings that are allowed and not safe everywhere."""

import pytest

from broker.config.kafka_settings import parse
from broker.config.listeners import listeners_of
from broker.config.security_advice import advice

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
HERE = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def of(given: dict[str, str]) -> list[str]:
    parsed = listeners_of(given)
    assert parsed.mistakes == []
    return advice(parse(given).settings, parsed.listeners)


def sasl(host: str, mechanisms: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {"listeners": f"{protocol}://{host}:9092", "sasl.enabled.mechanisms": mechanisms}


def test_nothing_is_said_of_an_agent_for_this_machine() -> None:
    assert of(HERE) == []


def test_a_listener_without_authentication_is_told() -> None:
    (told,) = of({"listeners": "PLAINTEXT://:9092"})
    assert "without asking" in told


@pytest.mark.parametrize("host", ["", "10.0.0.1"])
def test_plain_without_tls_is_told_where_others_are_on_the_way(host: str) -> None:
    (told,) = of(sasl(host, "PLAIN,SCRAM-SHA-512") | AUTHORIZER)
    assert "takes secrets as they are, by PLAIN, without TLS" in told


def test_scram_without_tls_is_told_to_protect_nothing_but_the_login() -> None:
    (told,) = of(sasl("", "SCRAM-SHA-512") | AUTHORIZER)
    assert "takes logins without TLS" in told


def test_plain_without_tls_is_not_told_within_one_machine() -> None:
    assert of(sasl("localhost", "PLAIN") | AUTHORIZER) == []


def test_logins_that_open_everything_are_told() -> None:
    (told,) = of(sasl("localhost", "SCRAM-SHA-512"))
    assert "authorizer.class.name is not set" in told


def test_an_authorizer_without_super_users_is_told() -> None:
    (told,) = of(HERE | AUTHORIZER | {"super.users": ""})
    assert "in a new cluster nobody" in told


def test_a_super_user_who_does_not_log_in_is_told() -> None:
    (told,) = of(HERE | AUTHORIZER | {"super.users": "User:admin;User:ANONYMOUS"})
    assert "User:ANONYMOUS" in told


def test_what_has_no_acl_and_is_open_is_told() -> None:
    (told,) = of(HERE | AUTHORIZER | {"allow.everyone.if.no.acl.found": "true"})
    assert "open to everybody" in told
