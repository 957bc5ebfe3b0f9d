"""Workers of Kafka Connect as a cluster: its configs, offsets and states are topics, its sources write exactly once."""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.parts import install
from tests.parts.process import Child, free_port

WORKER: Mapping[str, str] = {
    "plugin.discovery": "service_load",
    "exactly.once.source.support": "enabled",
    **{f"{of}.storage.topic": f"connect-{of}s" for of in ("config", "offset")},
    "status.storage.topic": "connect-states",
    **{
        f"{side}.converter": "org.apache.kafka.connect.storage.StringConverter"
        for side in ("key", "value")
    },
    # What a sink has not told when its worker is killed comes again.
    "offset.flush.interval.ms": "1000",
    # Whose worker is killed waits for nobody else.
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    # Sinks see what is committed only.
    "consumer.isolation.level": "read_committed",
    "consumer.auto.offset.reset": "earliest",
}
PATIENCE_S = 120.0


class ConnectNode:
    """One worker of the cluster `group`."""

    def __init__(self, folder: Path, bootstrap: str, group: str) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        own = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": f"http://127.0.0.1:{self.port}",
        }
        settings = folder / "worker.properties"
        settings.write_text(
            "".join(f"{name}={value}\n" for name, value in {**WORKER, **own}.items())
        )
        program = [
            *install.jvm("256m"),
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            f"{install.connect()}/*",
        ]
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.child = Child([*program, main, str(settings)], log=folder / "connect.log")

    def start(self) -> None:
        """Start it; it answers for connectors once it has read its topics and joined its group."""
        self.child.start(lambda: self._ask("GET", "/connectors")[0] == 200, seconds=PATIENCE_S)

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Have a connector of one task, and wait until that runs."""

        def created() -> bool:
            status, told = self._ask("PUT", f"/connectors/{name}/config", config)
            assert status in {0, 200, 201, 409, 500}, told
            return status in {200, 201}

        self._until(created)
        self.until_running(name)

    def until_running(self, name: str) -> None:
        """Wait until its task runs; none may have failed."""

        def runs() -> bool:
            status, told = self._ask("GET", f"/connectors/{name}/status")
            states = [task["state"] for task in told["tasks"]] if status == 200 else []
            assert "FAILED" not in states, told
            return states == ["RUNNING"]

        self._until(runs)

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.child.tail()
            time.sleep(0.1)

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status, 0 when it does not answer in JSON (as while it starts), and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "null")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()
