"""An etcd of three members that write to disk, as in production, and what befalls its members."""

import base64
import http.client
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.parts import install
from tests.parts.peer_proxy import PeerProxy
from tests.parts.process import Child, free_port
from tests.parts.servers import at_once, get_text, http_ok

JUNK = "/somebody's/"
JUNK_BYTES = 512 << 10
TOKEN = "frazil-test"


def until(holds: Callable[[], bool], what: str, *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class EtcdMember:
    """One process, and the network between it and its peers."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._listens = free_port()
        self.proxy = PeerProxy(self._listens)
        self.peer_url = f"http://127.0.0.1:{self.proxy.port}"
        self._folder = folder

    def prepare(self, peers: str, *flags: str) -> None:
        """`peers`: of the cluster that it is part of, as the flag --initial-cluster has it."""
        listens = f"http://127.0.0.1:{self._listens}"
        self.child = Child(
            [
                *(str(install.etcd()), "--name", self.name),
                *("--data-dir", str(self._folder / "data"), "--log-level", "warn"),
                *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
                *("--listen-peer-urls", listens, "--initial-advertise-peer-urls", self.peer_url),
                *("--initial-cluster", peers, "--initial-cluster-token", TOKEN, *flags),
            ],
            log=self._folder / "etcd.log",
        )

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def healthy(self) -> bool:
        """Does it answer a linearizable read?"""
        return http_ok(self.port, "/health")

    def start(self) -> None:
        self.child.start(lambda: self.healthy)

    def lose(self) -> None:
        """It ends, and its data are gone."""
        self.child.kill()
        shutil.rmtree(self._folder / "data")

    def ask(self, method: str, **body: Any) -> dict[str, Any]:
        """One of etcd's methods, by its JSON gateway. Raises AssertionError unless it is done."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", f"/v3/{method}", json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, f"{method}: {text}"
            told: dict[str, Any] = json.loads(text)
            return told
        finally:
            connection.close()

    @property
    def status(self) -> dict[str, Any]:
        return self.ask("maintenance/status")

    @property
    def id(self) -> str:
        """Decimal, as the gateway has it."""
        return str(self.status["header"]["member_id"])

    @property
    def leads(self) -> bool:
        status = self.status
        return bool(status["header"]["member_id"] == status.get("leader"))

    @property
    def revision(self) -> int:
        return int(self.status["header"]["revision"])

    @property
    def watchers(self) -> int:
        """How many watches it serves."""
        found = re.search(
            r"^etcd_debugging_mvcc_watcher_total (\S+)$",
            get_text(self.port, "/metrics"),
            re.MULTILINE,
        )
        assert found is not None
        return int(float(found[1]))

    def end(self) -> None:
        """At once: asked to leave, a leader looks for another one for seconds."""
        self.child.kill()
        self.proxy.close()


class EtcdCluster:
    """Tests share it under prefixes of their own, and leave it whole (`heal`)."""

    MEMBERS = 3

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self.members = [
            EtcdMember(folder / f"m{number}", f"m{number}") for number in range(self.MEMBERS)
        ]
        for member in self.members:
            member.prepare(_peers(self.members), *flags)
        self.endpoints = [member.endpoint for member in self.members]
        self._prefixes = itertools.count()

    def new_prefix(self) -> str:
        return f"/test{os.getpid()}-{next(self._prefixes)}"

    def __enter__(self) -> Self:
        at_once(EtcdMember.start, self.members)
        return self

    def __exit__(self, *_: object) -> None:
        at_once(EtcdMember.end, self.members)

    def heal(self) -> None:
        """All members run, hear each other and have what the others have."""
        for member in self.members:
            if member.child.running:
                member.child.resume()
            member.proxy.mend()
        at_once(EtcdMember.start, [each for each in self.members if not each.child.running])
        self.until_healthy()

    def until_healthy(self) -> None:
        """Every member answers, also one that was started a moment ago."""
        until(lambda: all(member.healthy for member in self.members), "a member is not healthy")

    def begin_anew(self) -> None:
        """All that it had is gone; it runs, and is empty."""
        at_once(EtcdMember.lose, self.members)
        at_once(EtcdMember.start, self.members)

    def others(self, *members: EtcdMember) -> list[EtcdMember]:
        return [each for each in self.members if each not in members]

    def leader_among(self, members: Sequence[EtcdMember]) -> EtcdMember:
        """Wait until these have elected one of them."""
        found = list[EtcdMember]()

        def elected() -> bool:
            found[:] = [each for each in members if each.leads]
            return len(found) == 1

        until(elected, "no leader")
        return found[0]

    def lead(self, member: EtcdMember) -> None:
        """Make it the leader."""

        def leads() -> bool:
            leader = self.leader_among(self.members)
            if leader is not member:
                # One that is still behind does not get it in time.
                with suppress(AssertionError):
                    leader.ask("maintenance/transfer-leadership", targetID=member.id)
            return member.leads

        until(leads, f"{member.name} does not lead")

    def isolate(self, member: EtcdMember) -> None:
        """Nothing passes any more between it and the others."""
        name = f"{int(member.id):x}"
        member.proxy.cut()
        for other in self.others(member):
            other.proxy.cut(name)

    def fill(self) -> None:
        """Write what belongs to somebody else, until the database has reached its quota."""
        value = base64.b64encode(bytes(JUNK_BYTES)).decode()
        told = ""
        for number in itertools.count():
            try:
                self.members[0].ask("kv/put", key=_key(f"{JUNK}{number}"), value=value)
            except AssertionError as error:
                told = str(error)
                break
        assert "database space exceeded" in told

    def empty(self) -> None:
        """What etcd's documentation has an operator do about it."""
        member = self.members[0]
        found = member.ask("kv/deleterange", key=_key(JUNK), range_end=_key(f"{JUNK}~"))
        member.ask("kv/compaction", revision=found["header"]["revision"], physical=True)
        for each in self.members:
            each.ask("maintenance/defragment")
        for alarm in member.ask("maintenance/alarm", action="GET")["alarms"]:
            member.ask("maintenance/alarm", action="DEACTIVATE", **alarm)

    @contextmanager
    def learner(self) -> Iterator[EtcdMember]:
        """A fourth member, which learns and answers nobody, is the first endpoint; it is gone afterwards."""
        member = EtcdMember(self._folder / "learner", "learner")
        leader = self.leader_among(self.members)
        added = leader.ask("cluster/member/add", peerURLs=[member.peer_url], isLearner=True)
        peers = _peers([*self.members, member])
        member.prepare(peers, *self._flags, "--initial-cluster-state", "existing")
        member.child.start(lambda: http_ok(member.port, "/livez"))
        self.endpoints.insert(0, member.endpoint)
        try:
            yield member
        finally:
            self.endpoints.remove(member.endpoint)
            leader.ask("cluster/member/remove", ID=added["member"]["ID"])
            member.end()


def _peers(members: Iterable[EtcdMember]) -> str:
    return ",".join(f"{member.name}={member.peer_url}" for member in members)


def _key(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
