"""The first page: the agents, what the cluster holds, and its jobs. Pure.

All of it is in the machine, so every agent says the same. What a single agent knows of itself (its load, its
latency) is in its metrics.
"""

from typing import NamedTuple

from broker.reports.log_lines import place
from coordinator.commands.job_commands import JobKind
from coordinator.machine.machine import Machine
from coordinator.tables.incarnations import IncarnationRow


class AgentView(NamedTuple):
    """A live agent."""

    name: str
    node_id: int
    zone: str
    addresses: tuple[str, ...]
    """Where its clients connect: `LISTENER host:port`."""
    version: str
    shards: int
    """Of groups, that it coordinates."""
    jobs: tuple[str, ...]
    """That it holds."""
    clock_behind_ms: int
    """Its wall clock's newest entry behind the newest of all agents."""


class JobView(NamedTuple):
    """A job of the cluster."""

    name: str
    agent: str
    """"": nobody holds it."""
    is_running: bool
    done: int
    total: int
    note: str
    reported_ms: int
    """Since it was last told of; -1: this holder has told nothing."""


class ClusterView(NamedTuple):
    """The cluster at one position of its log."""

    position: str
    """Of its newest entry: `era:revision`."""
    time_ms: int
    """The machine's."""
    agents: tuple[AgentView, ...]
    topics: int
    partitions: int
    groups: int
    transactional_ids: int
    open_transactions: int
    schemas: int
    snapshots: tuple[str, ...]
    """That are published, newest first."""
    jobs: tuple[JobView, ...]


def cluster_view(machine: Machine) -> ClusterView:
    """What the first page shows."""
    newest_ms = max((row.clock_ms for row in machine.incarnations), default=0)
    return ClusterView(
        position=place(machine.position),
        time_ms=machine.time_ms,
        agents=tuple(_agent(machine, row, newest_ms) for row in machine.incarnations),
        topics=len(machine.topics),
        partitions=len(machine.partitions),
        groups=len(machine.groups),
        transactional_ids=len(machine.transactions),
        open_transactions=len(machine.transactions.ongoing),
        schemas=len(machine.schemas),
        snapshots=tuple(place(each.position) for each in machine.snapshots.published),
        jobs=tuple(job_view(machine, kind) for kind in JobKind),
    )


def _agent(machine: Machine, row: IncarnationRow, newest_ms: int) -> AgentView:
    return AgentView(
        name=row.node_name,
        node_id=row.node_id,
        zone=row.zone,
        addresses=_addresses(row),
        version=row.software_version,
        shards=len(machine.groups.held_by(row.incarnation)),
        jobs=tuple(kind.name.lower() for kind in machine.jobs.held_by(row.incarnation)),
        clock_behind_ms=newest_ms - row.clock_ms,
    )


def _addresses(row: IncarnationRow) -> tuple[str, ...]:
    """Each once: several nodes of one agent (`NAME/1`) may have the same."""
    found = [f"{each.name.partition('/')[0]} {each.host}:{each.port}" for each in row.listeners]
    return tuple(dict.fromkeys(found))


def job_view(machine: Machine, kind: JobKind) -> JobView:
    """What the cluster knows of a job."""
    row = machine.jobs.get(kind)
    holder = machine.incarnations.get(row.holder)
    return JobView(
        name=kind.name.lower(),
        agent="" if holder is None else holder.node_name,
        is_running=row.running,
        done=row.done,
        total=row.total,
        note=row.note,
        reported_ms=machine.time_ms - row.reported_ms if row.reported_ms else -1,
    )
