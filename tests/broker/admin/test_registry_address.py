"""Where whoever asks an agent is told that its schema registry is."""

import pytest

from broker.admin.registry_address import Caller, host_of, registry_url
from broker.config.addresses import Address

FAR = Caller("frazil.example", "10.0.0.9", "10.0.0.1")
HERE = Caller("localhost", "127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "caller", "told"),
    [
        ("0.0.0.0", FAR, "http://frazil.example:8081"),
        ("::", HERE, "http://localhost:8081"),
        ("0.0.0.0", FAR._replace(host=""), "http://10.0.0.1:8081"),
        ("0.0.0.0", FAR._replace(host="fd00::1"), "http://[fd00::1]:8081"),
        ("10.0.0.1", FAR, "http://frazil.example:8081"),
        ("10.0.0.2", FAR, "http://10.0.0.2:8081"),
        ("registry.example", HERE, "http://registry.example:8081"),
    ],
)
def test_a_registry_has_the_name_by_which_the_caller_reached_its_address(host, caller, told):
    assert registry_url(Address(host, 8081), caller) == told


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_registry_that_only_this_machine_reaches_is_told_nobody_elsewhere(host):
    listener = Address(host, 8081)
    assert registry_url(listener, HERE) == f"http://{f'[{host}]' if host == '::1' else host}:8081"
    assert registry_url(listener, FAR) is None
    # What the caller says of itself does not count.
    assert registry_url(listener, FAR._replace(host="localhost")) is None


def test_a_registry_with_tls_is_told_as_such():
    assert registry_url(Address("*", 8081, secure=True), FAR) == "https://frazil.example:8081"


@pytest.mark.parametrize(
    ("header", "host"),
    [("a.example:9094", "a.example"), ("[::1]:9094", "::1"), ("a", "a"), ("", ""), ("[", "")],
)
def test_the_host_of_a_header_has_no_port_and_no_brackets(header, host):
    assert host_of(header) == host
