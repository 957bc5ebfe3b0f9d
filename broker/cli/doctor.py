"""`frazil doctor`: settings, store, log, clock and ports, each with what to do about it.

Looks without disturbing: the store gets two small objects that are deleted again, the log is only
read, ports are tried and released. An agent that is running on this machine with these settings
is recognised, so that its ports and its embedded log are not called trouble, asked what only it can tell,
and looked for where clients are told that it is. Without one the log is read to its end, and compared with the store.

Left out: load, latencies over time, other agents.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from broker.cli.admin_client import AgentPlace, ask
from broker.cli.checks import advertised as advertised_addresses
from broker.cli.command_result import ToolError
from broker.cli.log_machine import UNREADABLE, Tell, machine_of
from broker.config.addresses import Address
from broker.config.listeners import HTTP_LISTENERS, ListenerSettings
from broker.config.security_advice import advice
from broker.config.settings import (
    Loaded,
    Settings,
    advertised,
    http_listener_of,
    listeners_of,
    name_of,
    token_of,
)
from broker.config.values import SettingsError
from broker.doors import fault_of_address
from broker.edge.key_stores import TlsError
from broker.edge.tls_listener import SOON_DAYS, TlsListener, tls_listeners
from broker.environment import log_options, now_ms, open_adapters, store_options
from broker.jobs.kinds import unnamed_objects
from broker.node import EdgeStats
from broker.reports import ack_time
from broker.reports.log_lines import voided_line
from broker.sasl.rules import rules_by_listener
from broker.store import identity, truncation
from broker.store.identity import ClusterMismatchError
from broker.store.truncation import TruncatedLogError
from broker.workers import seats
from broker.workers.supervisor import count_of
from coordinator.log.metadata_log import LogError, LogRefusedError
from coordinator.log.open_log import open_log
from protocol.fault_codes import FaultCode, Sentence, fault_of, told
from storage.formats import cluster_identity
from storage.stores.object_store import ObjectStore, StoreError, StoreRefusedError
from storage.stores.open_store import open_store
from storage.stores.put_once import check_puts_once

PROBE_KEY = "doctor/probe"
PROBE_AGAIN_KEY = "doctor/probe-again"
PROBE = b"frazil doctor was here\n"
CALL_S_MAX = 10.0
SKEW_MS_MAX = 5_000
"""A clock this far from the store's is told; requests to S3 are refused beyond 15 minutes."""
SLOW_MS = 1_000


class Finding(NamedTuple):
    """One line of the examination."""

    what: str
    bad: bool
    text: str
    """Of a trouble with its code (`Sentence`), where it has one."""
    note: bool = False
    """Nothing is wrong, and somebody should look whether it is meant so."""

    def line(self) -> str:
        word = "BAD" if self.bad else "note" if self.note else "ok"
        return f"{word:<4} {self.what:<9} {told(self.text)}"


def _bad(what: str, text: str, fault: FaultCode | None) -> Finding:
    return Finding(what, bad=True, text=Sentence(text, fault))


async def examine(loaded: Loaded, *, tell: Tell) -> list[Finding]:
    """Everything, in the order in which an agent would meet it. `tell` hears what is waited for."""
    settings = loaded.settings
    text = f"cluster {settings.cluster_id}, node {_node_name(settings)}"
    findings = [Finding("settings", bad=False, text=text)]
    findings += [Finding("settings", bad=False, text=warning) for warning in loaded.warnings]
    running = await asyncio.to_thread(_agent_runs, settings)
    findings += [finding async for finding in _store(settings)]
    findings += [finding async for finding in _log(settings, running=running)]
    if not any(finding.bad for finding in findings):
        findings += await (_told(settings) if running else _compared(settings, tell))
    findings += _ports(settings, running=running)
    if running:
        findings += await _advertised(settings)
    findings += _workers(settings)
    findings += _certificates(settings)
    return findings


def _node_name(settings: Settings) -> str:
    ports = {address.name: address.port or 0 for address in settings.listen}
    host_name = socket.gethostname()
    listeners = advertised(settings, ports=ports, host_name=host_name)
    return name_of(settings, listeners=listeners, host_name=host_name)


async def _store(settings: Settings) -> AsyncIterator[Finding]:
    where = settings.store_url
    try:
        store = open_store(settings.store_url, store_options(settings), now_ms=now_ms)
    except ValueError as error:
        yield _bad("store", str(error), FaultCode.WRONG_VALUE)
        return
    async with contextlib.aclosing(store):
        try:
            async with asyncio.timeout(CALL_S_MAX):
                owner = await cluster_identity.read_identity(store)
                took_ms = await _probe(store)
                put_ms = await _put_again(store)
                await check_puts_once(store, PROBE_KEY, b"doctor")
                skew_ms = await _skew_ms(store)
                refused = await store.delete([PROBE_KEY, PROBE_AGAIN_KEY])
        except StoreRefusedError as error:
            yield _bad("store", f"{where} refuses: {error}", fault_of(error))
        except (StoreError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CALL_S_MAX:g} s"
            advice = "check store, store.endpoint and the network"
            text = f"{where} does not answer: {reason}; {advice}"
            yield _bad("store", text, fault_of(error) or FaultCode.STORE_UNREACHABLE)
        else:
            yield _owner(settings, owner)
            slow = f", slow: {took_ms} ms" if took_ms > SLOW_MS else f", {took_ms} ms"
            yield Finding("store", bad=False, text=f"{where} can be written and read{slow}")
            for reason in dict.fromkeys(reason for _, reason in refused):
                yield _bad(
                    "store",
                    f"{where} refuses to delete: {reason}; what nobody needs any more stays"
                    " there: give the right to it (S3: s3:DeleteObject)",
                    FaultCode.STORE_DENIED,
                )
            yield Finding("acks", bad=False, text=ack_time.of_settings(settings, put_ms))
            yield _clock(skew_ms)


def _owner(settings: Settings, owner: cluster_identity.ClusterIdentity | None) -> Finding:
    if owner is None:
        return Finding("store", bad=False, text="it is nobody's yet; the first agent claims it")
    text = f"it belongs to {owner.describe()}"
    if owner.cluster_id == settings.cluster_id:
        return Finding("store", bad=False, text=text)
    text += f", not to {settings.cluster_id!r}: set another store, or the right cluster.id"
    return _bad("store", text, FaultCode.OTHER_CLUSTER)


async def _probe(store: ObjectStore) -> int:
    """Write and read a small object; ms that it took."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await store.put_new(PROBE_KEY, [PROBE])
    if bytes(await store.get(PROBE_KEY)) != PROBE:
        raise StoreRefusedError(f"{PROBE_KEY} came back with other bytes")
    return int((loop.time() - begun) * 1000)


async def _put_again(store: ObjectStore) -> int:
    """ms of a PUT over a connection that is there."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await store.put_new(PROBE_AGAIN_KEY, [PROBE])
    return round((loop.time() - begun) * 1000)


async def _skew_ms(store: ObjectStore) -> int:
    """This machine's clock minus the store's, roughly."""
    page = await store.list_after(PROBE_KEY, "")
    stamps = [info.modified_ms for info in page if info.key == PROBE_KEY]
    return now_ms() - stamps[0] if stamps else 0


def _clock(skew_ms: int) -> Finding:
    if abs(skew_ms) <= SKEW_MS_MAX:
        return Finding("clock", bad=False, text="agrees with the store's")
    side = "ahead of" if skew_ms > 0 else "behind"
    text = f"{abs(skew_ms) / 1000:.0f} s {side} the store's: set up NTP"
    return _bad("clock", text, FaultCode.CLOCK_SKEW)


async def _log(settings: Settings, *, running: bool) -> AsyncIterator[Finding]:
    where = settings.log_url
    try:
        log = open_log(where, log_options(settings), settings.cluster_id)
    except ValueError as error:
        yield _bad("log", str(error), FaultCode.WRONG_VALUE)
        return
    if where.startswith("sqlite://") and not await asyncio.to_thread(exists, where):
        yield Finding("log", bad=False, text=f"{where} is not there yet; the agent makes it")
        return
    async with contextlib.aclosing(log):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(CALL_S_MAX):
                await identity.enter_own(log)
                head = await log.head()
                voids = await log.voids()
        except ClusterMismatchError as error:
            yield _bad("log", str(error), error.fault)
        except LogRefusedError as error:
            if running and where.startswith("sqlite:"):
                yield Finding("log", bad=False, text=f"{where} is in use by the running agent")
            else:
                yield _bad("log", f"{where} refuses: {error}", fault_of(error))
        except (LogError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CALL_S_MAX:g} s"
            advice = "check log and the network, and that etcd has a leader"
            text, is_etcd = f"{where} does not answer: {reason}; {advice}", where.startswith("etcd")
            late = FaultCode.ETCD_UNREACHABLE if is_etcd else None
            yield _bad("log", text, fault_of(error) or late)
        else:
            took_ms = int((loop.time() - begun) * 1000)
            state = "is empty" if head == 0 else "has entries"
            slow = ", slow" if took_ms > SLOW_MS else ""
            yield Finding("log", bad=False, text=f"{where} answers{slow} ({took_ms} ms), {state}")
            for voided in voids:
                text = f"agents pass over {voided_line(voided._asdict())}"
                yield Finding("log", bad=False, text=text, note=True)


async def _told(settings: Settings) -> list[Finding]:
    """What the running agent says of the store."""
    assert settings.http is not None
    try:
        token = token_of(settings, lambda file: Path(file).read_text(encoding="utf-8"))
        scheme = "https" if settings.http.secure else "http"
        url = f"{scheme}://{_host_of(settings.http)}:{settings.http.port}"
        place = AgentPlace(url, token, _trusting(settings))
        told = await asyncio.to_thread(ask, place, "/objects/unnamed")
    except (ToolError, SettingsError, TlsError, OSError) as error:
        return [_bad("objects", str(error), fault_of(error))]
    keys = [each["key"] for each in told["examples"]]
    return [_unnamed(told, keys)]


async def _compared(settings: Settings, tell: Tell) -> list[Finding]:
    """The log, read to its end, beside the store; nothing when either is not there yet."""
    if settings.log_url.startswith("sqlite://") and not exists(settings.log_url):
        return await _lost_log(settings)
    store, log = open_adapters(settings)
    async with contextlib.aclosing(store), contextlib.aclosing(log):
        try:
            await identity.look(store, log, settings.cluster_id)
            machine = await machine_of(store, log, settings, tell=tell)
            await truncation.check(store, log, machine)
            found = await unnamed_objects.count(store, machine)
        except (*UNREADABLE, TruncatedLogError) as error:
            return [_bad("log", str(error), fault_of(error))]
        keys = [info.key for info in found.examples]
        return [_unnamed(found.view(), keys)]


async def _lost_log(settings: Settings) -> list[Finding]:
    """Of an embedded log that is not there: trouble, when the store has had one."""
    store = open_store(settings.store_url, store_options(settings), now_ms=now_ms)
    async with contextlib.aclosing(store):
        try:
            await identity.origin_of(store, await identity.newest_era(store))
        except ClusterMismatchError:
            return []  # There was none yet.
        except StoreError as error:
            return [_bad("log", str(error), fault_of(error))]
    text = (
        f"{settings.log_url} is not there, and the object store belongs to a log that was: no agent takes a new one."
        " Put it back, or, if it is lost, begin it anew from the store (frazil recover)"
    )
    return [_bad("log", text, FaultCode.OTHER_CLUSTER)]


def _unnamed(found: Mapping[str, Any], keys: list[str]) -> Finding:
    count, orphans = found["unnamed"], found["orphans"]
    kept = found.get("kept", 0)  # An agent of an older release does not say.
    if count == 0:
        return Finding("objects", bad=False, text="the log names all that there are")
    text = f"{count} ({found['bytes']} bytes) that the log does not name: "
    if count > kept:
        text += (
            f"{count - kept} were put and not committed before an agent was killed. {orphans} of them are older than every"
            " live agent and will be deleted, the others when the agents were started again. "
        )
    if kept:
        text += f"{kept} are of an era that is over, may hold what was lost with its log, and are never deleted. "
    listed = ", ".join(keys) + (", …" if count > len(keys) else "")
    return Finding("objects", bad=False, text=f"{text}They are {listed}")


def exists(url: str) -> bool:
    """Of an embedded log (whose path is as it is), or of a store in a folder."""
    path = url.partition("://")[2]
    return Path(unquote(path) if url.startswith("file:") else path).exists()


def _ports(settings: Settings, *, running: bool) -> list[Finding]:
    wanted = [("listen", address.host, address.port or 0) for address in settings.listen]
    workers = count_of(settings)
    if workers > 1:
        wanted += [("workers.port.step", *each) for each in seats.own_places(settings, workers)]
    for name, setting in HTTP_LISTENERS.items():
        wanted += [(setting, each.host, each.port) for each in settings.http_addresses(name)]
    findings = []
    for setting, host, port in wanted:
        trouble = _trouble_with(host, port)
        if trouble is None:
            findings.append(Finding("ports", bad=False, text=f"{setting} {host}:{port} is free"))
        elif running:
            findings.append(
                Finding("ports", bad=False, text=f"{setting} {host}:{port}: an agent is running")
            )
        else:
            findings.append(
                _bad(
                    "ports",
                    f"{setting} {host}:{port} cannot be listened on ({trouble}):"
                    f" end what uses it, or set another ({setting})",
                    fault_of(trouble),
                )
            )
    return findings


async def _advertised(settings: Settings) -> list[Finding]:
    """Whether clients find the agent that runs here, at listeners that it has (settings may be newer)."""
    had = {each.name for each in settings.listen if _trouble_with(each.host, each.port or 0)}
    sentences = await advertised_addresses.tried(
        settings, count_of(settings), host_name=socket.gethostname(), listening=had
    )
    return [Finding("clients", bad=bool(fault_of(each)), text=each) for each in sentences]


def _workers(settings: Settings) -> list[Finding]:
    """Whether there can be as many as the settings want."""
    workers = count_of(settings)
    mistakes = [] if workers == 1 else seats.contradictions(settings, workers)
    return [_bad("workers", each, FaultCode.WRONG_VALUE) for each in mistakes]


def _certificates(settings: Settings) -> list[Finding]:
    """Of the listeners that speak TLS, and what may be known or done without a right to it."""
    kafkas = listeners_of(settings)
    https = [http_listener_of(settings, name).secured for name in HTTP_LISTENERS]
    listeners = [*kafkas, *filter(None, https)]
    findings = _rights(settings, kafkas)
    for listener in listeners:
        try:
            for tls in tls_listeners([listener], EdgeStats()).values():
                findings.append(_certificate(tls))
        except TlsError as error:
            findings.append(_bad("tls", str(error), fault_of(error)))
    return findings


def _certificate(tls: TlsListener) -> Finding:
    days = (tls.ends_ms - now_ms()) / 86_400_000
    text = f"listener {tls.name}: {tls.subject}, for {days:.1f} days"
    if days >= SOON_DAYS:
        return Finding("tls", bad=False, text=text)
    text += "; put a new one in its place: agents take it without a restart"
    return Finding("tls", bad=days < 0, text=Sentence(text, FaultCode.TLS_FAILED), note=True)


def _rights(settings: Settings, listeners: Sequence[ListenerSettings]) -> list[Finding]:
    notes = advice(settings.kafka, listeners)
    findings = [Finding("rights", bad=False, text=each, note=True) for each in notes]
    try:
        rules_by_listener(listeners)
    except SettingsError as error:
        findings += [Finding("sasl", bad=True, text=each) for each in error.mistakes]
    return findings


def _trouble_with(host: str, port: int) -> Sentence | None:
    """Why nobody can listen there; None when somebody can."""
    name = None if host in ("", "*") else host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Not listened on: an agent that starts just now has bound it, and is about to.
            door.bind(address)
    except OSError as error:
        return Sentence(error.strerror or str(error), fault_of_address(error))
    return None


def _host_of(http: Address) -> str:
    return "127.0.0.1" if http.host in ("", "*", "0.0.0.0") else http.host  # noqa: S104


def _trusting(settings: Settings) -> ssl.SSLContext | None:
    """Trusts the certificate that the settings name, whatever the name in it; None without TLS.
    Raises TlsError."""
    secured = http_listener_of(settings, "http").secured
    return None if secured is None else advertised_addresses.trusting(secured)


def _agent_runs(settings: Settings) -> bool:
    """Whether an agent answers at the admin address of the settings."""
    if settings.http is None or settings.http.port == 0:
        return False
    host, port = _host_of(settings.http), settings.http.port
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        if settings.http.secure:
            context = _trusting(settings)
            connection = http.client.HTTPSConnection(host, port, timeout=2, context=context)
        connection.request("GET", "/health/live")
        return connection.getresponse().read() == b'{"live": true}'
    except (OSError, http.client.HTTPException, TlsError):
        return False
    finally:
        connection.close()
