"""Doctor looks for an agent where clients are told that it is: what it asks of each kind of listener."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.cli.checks import advertised
from broker.config.settings import Settings
from protocol.fault_codes import FaultCode, fault_of
from tests.kit.certificates import Authority
from tests.kit.sockets import Place, agent_of, settings_of
from tests.parts.process import free_port

pytestmark = pytest.mark.real_loop

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def flags_of(folder: Path, protocol: str, *more: str, authority: Authority) -> list[str]:
    """Of an agent with one listener of this protocol."""
    pem = folder / "agent.pem"
    pem.write_text(authority.sign().pem)
    trusted = folder / "trusted.pem"
    trusted.write_text(authority.pem)
    flags = [f"listeners=MINE://127.0.0.1:{free_port()}"]
    flags += [f"listener.security.protocol.map=MINE:{protocol}", *more]
    if protocol.endswith("SSL"):
        flags += ["ssl.keystore.type=PEM", f"ssl.keystore.location={pem}"]
        flags += ["ssl.truststore.type=PEM", f"ssl.truststore.location={trusted}"]
    if protocol.startswith("SASL"):
        users = f'{PLAIN} required user_ann="secret";'
        flags += ["sasl.enabled.mechanisms=PLAIN"]
        flags += [f"listener.name.mine.plain.sasl.jaas.config={users}"]
    return flags


@asynccontextmanager
async def running(folder: Path, protocol: str, *more: str) -> AsyncIterator[Settings]:
    flags = flags_of(folder, protocol, *more, authority=Authority())
    async with agent_of(Place(), *flags) as agent:
        await agent.until(ready=True)
        yield settings_of(*flags)


@pytest.mark.parametrize(
    ("protocol", "more", "found"),
    [
        ("PLAINTEXT", (), "and this cluster answers there"),
        ("SSL", (), "and this cluster answers there"),
        ("SSL", ("ssl.client.auth=required",), "and somebody answers there"),
        ("SASL_SSL", (), "and somebody answers there"),
        ("SASL_PLAINTEXT", (), "and somebody answers there"),
    ],
)
async def test_an_agent_is_found_at_its_listener(
    tmp_path: Path, protocol: str, more: tuple[str, ...], found: str
) -> None:
    async with running(tmp_path, protocol, *more) as settings:
        (told,) = await advertised.tried(settings, 1, host_name="here", listening={"MINE"})
        assert told.endswith(found)
        assert fault_of(told) is None


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_who_shows_another_certificate_is_not_this_agent(
    tmp_path: Path, protocol: str
) -> None:
    async with running(tmp_path, protocol) as settings:
        (tmp_path / "agent.pem").write_text(Authority("other").sign().pem)
        (told,) = await advertised.tried(settings, 1, host_name="here", listening={"MINE"})
        assert "its certificate is not taken" in told
        assert fault_of(told) is FaultCode.ADVERTISED_UNREACHABLE


async def test_a_listener_that_the_agent_does_not_have_yet_is_not_looked_for() -> None:
    settings = settings_of("listen=127.0.0.1:1")
    assert await advertised.tried(settings, 1, host_name="here", listening=()) == []


async def test_each_worker_is_looked_for_at_its_own_address() -> None:
    settings = settings_of("listen=127.0.0.1:1", "workers.port.step=1")
    told = await advertised.tried(settings, 2, host_name="here", listening={"PLAINTEXT"})
    assert ["127.0.0.1:2," in told[0], "127.0.0.1:3," in told[1]] == [True, True]
    assert {fault_of(each) for each in told} == {FaultCode.ADVERTISED_UNREACHABLE}
