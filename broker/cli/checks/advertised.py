"""Whether clients find the agent where they are told that it is: connects to its advertised addresses, as they do.

A listener that lets anybody in is asked which cluster it is. One behind TLS shows the agent's certificate, whatever the
name in it; of one that asks who one is, without TLS, it is known only that somebody answers. Where this machine and
clients have different ways to an address, only a client can tell.
"""

import asyncio
import ssl
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

from broker.cli.kafka_client import Address, ClientError, KafkaClient
from broker.client import tls_failures
from broker.config.listeners import ListenerSettings
from broker.config.settings import Settings, listeners_of
from broker.edge.key_stores import TlsError, material_of
from broker.workers import seats
from coordinator.commands.entries import Listener
from protocol.errors import KafkaError
from protocol.fault_codes import FaultCode, Sentence

ANSWER_S_MAX: Final = 3.0


async def tried(
    settings: Settings, workers: int, *, host_name: str, listening: Container[str]
) -> Sequence[str]:
    """A sentence for each address of these listeners; that of a trouble is a `Sentence` with its code."""
    own = {each.name: each for each in listeners_of(settings)}
    told = seats.told_addresses(settings, workers, host_name=host_name)
    # A port that the system chose is known to nobody before the agent runs.
    asked = [each for each in told if each.port and each.name in listening]
    return await asyncio.gather(
        *[_tried(own[each.name], each, settings.cluster_id) for each in asked]
    )


async def _tried(listener: ListenerSettings, told: Listener, cluster_id: str) -> str:
    address = Address(told.host, told.port)
    what = f"clients of listener {told.name} are told {address}"
    try:
        tls = trusting(listener)
        if listener.authenticates:
            await _connect(address, tls)
            return f"{what}, and somebody answers there"
        found = await _cluster_at(address, tls)
    except (ClientError, KafkaError, OSError, TlsError, TimeoutError) as error:
        return Sentence(
            f"{what}, where this agent is not found ({_reason(error)}): set advertised.listeners to"
            " host and port by which they reach it",
            FaultCode.ADVERTISED_UNREACHABLE,
        )
    if found != cluster_id:
        return Sentence(
            f"{what}, where cluster {found!r} answers, and not {cluster_id!r}: set"
            " advertised.listeners to host and port by which they reach this agent",
            FaultCode.ADVERTISED_UNREACHABLE,
        )
    return f"{what}, and this cluster answers there"


async def _connect(address: Address, tls: ssl.SSLContext | None) -> None:
    host, port = address
    async with asyncio.timeout(ANSWER_S_MAX):
        _, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=None if tls is None else host
        )
    writer.transport.abort()


async def _cluster_at(address: Address, tls: ssl.SSLContext | None) -> str | None:
    # One question has a third of the time.
    async with KafkaClient([address], timeout_ms=int(3000 * ANSWER_S_MAX), tls=tls) as client:
        return (await client.refresh()).cluster_id


def trusting(listener: ListenerSettings) -> ssl.SSLContext | None:
    """Trusts the certificate that the settings name, whatever the name in it; None without TLS.
    Raises TlsError."""
    if listener.tls is None:
        return None
    chain = material_of(listener.tls, lambda file: Path(file).read_bytes()).chain.decode()
    context = ssl.create_default_context(cadata=chain)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return tls_failures.sentence(error)
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S_MAX:g} s"
    return getattr(error, "strerror", None) or str(error)
