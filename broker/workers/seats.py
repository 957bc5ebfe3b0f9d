"""How the agents of one machine differ: names, ids, ports, and each one's part of the memory. Pure.

A client that was told an address must reach that agent and no other: it looks for a group's
coordinator, or for the node that Metadata names. So each worker has, beside each port of the settings,
one of its own, and tells clients that one. The names are stable, so a worker that is started again has
its node id and its address back; the first one has the name that a single agent has.

Left out: binding anything (`broker.workers.supervisor`, `broker.agent`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from broker.config.addresses import WILDCARD_HOSTS, Address, NamedAddress
from broker.config.settings import ONE_AGENT, MiB, Settings, advertised, name_of
from coordinator.commands.entries import Listener
from coordinator.tables.incarnations import NODE_NAME_MAX

PORT_MAX: Final = 65_535
NODE_ID_STEP: Final = 1000
"""Between the ids of workers where node.id is set: other agents' ids are near to each other."""


class Seat(NamedTuple):
    """What makes a worker one of several; all of it is JSON."""

    number: int
    """From 1."""
    workers: int
    first_name: str
    """The node name of the first."""
    listen: Mapping[str, int]
    """Ports that are shared, as they were bound, by Kafka listener."""
    http: tuple[int, ...]
    registry: tuple[int, ...]

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> "Seat":
        """The inverse of `_asdict`, sent as JSON. Raises LookupError, TypeError."""
        ports = {name: tuple(fields[name]) for name in ("http", "registry")}
        return cls(**{**fields, **ports})

    @property
    def name(self) -> str:
        """What the worker is called in logs and metrics."""
        return f"w{self.number}"

    @property
    def node_name(self) -> str:
        """The first one's, with a suffix that is never cut."""
        suffix = "" if self.number == 1 else f"/{self.name}"
        return self.first_name[-(NODE_NAME_MAX - len(suffix)) :] + suffix


def cores(available: int, cpu_max: str) -> int:
    """How many workers `auto` is: the cores that the process may use, and no more than its quota.

    `cpu_max`: of the control group, "quota period" in µs, or "max period"; "" where there is none.
    """
    quota, _, period = cpu_max.strip().partition(" ")
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return max(1, available)
    return max(1, min(available, -(-int(quota) // int(period))))


def contradictions(settings: Settings, count: int) -> list[str]:
    """Why so many workers cannot be; settings that one agent can have."""
    mistakes = []
    for name, url in (("log", settings.log_url), ("store", settings.store_url)):
        if url.startswith(ONE_AGENT):
            scheme = url.partition(":")[0]
            mistakes.append(
                f"workers: {count} cannot share {name}={scheme}:…, which only one process can have:"
                " use etcd and an object store, or workers=1"
            )
    taken: list[tuple[str, str, int]] = list(_shared(settings))
    for number in range(1, count + 1):
        for name, host, port in list(_own(settings, number)):
            what = f"the port {port} of worker {number} at listener {name}"
            if port > PORT_MAX:
                mistakes.append(f"{what} is more than {PORT_MAX}: set a smaller workers.port.step")
            other = next((each for each in taken if _meet((each[1], each[2]), (host, port))), None)
            if other is not None:
                mistakes.append(f"{what} is that of {other[0]}: set another workers.port.step")
            taken.append((f"worker {number} at listener {name}", host, port))
    return mistakes


def _shared(settings: Settings) -> Iterator[tuple[str, str, int]]:
    for listener in settings.listen:
        yield f"listener {listener.name}", listener.host, listener.port or 0
    for name in ("http", "registry"):
        for address in settings.http_addresses(name):
            yield f"the {name} listener", address.host, address.port


def _own(settings: Settings, number: int) -> Iterator[tuple[str, str, int]]:
    for listener in settings.listen:
        yield listener.name, listener.host, own_port(settings, listener.port or 0, number)


def _meet(one: tuple[str, int], other: tuple[str, int]) -> bool:
    wild = {one[0], other[0]} & {"", *WILDCARD_HOSTS}
    return one[1] == other[1] != 0 and (one[0] == other[0] or bool(wild))


def own_port(settings: Settings, port: int, number: int) -> int:
    """A worker's own port beside one of the settings; 0, a free one, stays 0."""
    return port and port + number * settings.workers_port_step


def own_places(settings: Settings, workers: int) -> list[tuple[str, int]]:
    """Host and port of all that are one worker's alone."""
    numbers = range(1, workers + 1)
    return [(host, port) for each in numbers for _, host, port in _own(settings, each)]


def own_ports(settings: Settings, number: int) -> dict[str, int]:
    """By Kafka listener. `settings`: as they were written, before ports were bound."""
    return {name: port for name, _, port in _own(settings, number)}


def told_addresses(settings: Settings, workers: int, *, host_name: str) -> list[Listener]:
    """Where clients are told that the agents of these settings are, of all workers."""
    if workers == 1:
        ports = {each.name: each.port or 0 for each in settings.listen}
        return list(advertised(settings, ports=ports, host_name=host_name))
    found: list[Listener] = []
    for number in range(1, workers + 1):
        told = tuple(_advertised(settings, each, number) for each in settings.advertise)
        ports = own_ports(settings, number)
        found += advertised(replace(settings, advertise=told), ports=ports, host_name=host_name)
    return found


def node_name(settings: Settings, *, ports: Mapping[str, int], host_name: str) -> str:
    """What a single agent of these settings is called. `ports`: as they were bound."""
    listeners = advertised(settings, ports=ports, host_name=host_name)
    return name_of(settings, listeners=listeners, host_name=host_name)


def settings_of(settings: Settings, seat: Seat) -> Settings:
    """Those of one worker. What is bounded in memory is shared out: the machine has it once."""
    node_id = settings.node_id
    if node_id >= 0:
        node_id += (seat.number - 1) * NODE_ID_STEP
    return replace(
        settings,
        workers=1,
        node_name=seat.node_name,
        node_id=node_id,
        listen=tuple(each._replace(port=seat.listen[each.name]) for each in settings.listen),
        advertise=tuple(_advertised(settings, each, seat.number) for each in settings.advertise),
        http=next(iter(_bound(settings.http_addresses("http"), seat.http)), None),
        registry_listen=_bound(settings.registry_listen, seat.registry),
        cache_bytes=max(MiB, settings.cache_bytes // seat.workers),
        produce_buffer_bytes=max(
            2 * settings.chunk_bytes_max, settings.produce_buffer_bytes // seat.workers
        ),
        telemetry_metrics_bytes=settings.telemetry_metrics_bytes // seat.workers,
    )


def _bound(addresses: tuple[Address, ...], ports: tuple[int, ...]) -> tuple[Address, ...]:
    pairs = zip(addresses, ports, strict=True)
    return tuple(address._replace(port=port) for address, port in pairs)


def _advertised(settings: Settings, address: NamedAddress, number: int) -> NamedAddress:
    """What is in front of the ports (a load balancer, a translation of addresses) has one for each
    worker, too, as far from the one that is set."""
    if address.port is None:
        return address
    return address._replace(port=own_port(settings, address.port, number))
