"""One worker of Kafka Connect with one connector, its offsets in a file: it goes on after a kill."""

import http.client
import json
from collections.abc import Mapping
from pathlib import Path

from tests.parts.process import Child, free_port

WORKER: Mapping[str, str] = {
    "plugin.discovery": "only_scan",
    # What a killed worker has not written down is sent again.
    "offset.flush.interval.ms": "1000",
}


class ConnectWorker:
    def __init__(
        self,
        folder: Path,
        program: list[str],
        settings: Mapping[str, str],
        connector: Mapping[str, str],
    ) -> None:
        """`program`: a Java with Connect's classes. `settings`: of the worker, beside `WORKER`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.name = connector["name"]
        own = {
            "listeners": f"http://127.0.0.1:{self.port}",
            "offset.storage.file.filename": str(folder / "offsets"),
        }
        worker, source = folder / "worker.properties", folder / "connector.json"
        told = {**WORKER, **own, **settings}
        worker.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
        source.write_text(json.dumps(dict(connector)))
        self.child = Child(
            [*program, "org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(source)],
            log=folder / "connect.log",
        )

    def start(self) -> None:
        self.child.start(self._runs, seconds=180)

    def _runs(self) -> bool:
        """Whether the connector has its task, and none has failed."""
        told = self._told(f"/connectors/{self.name}/status")
        tasks = told.get("tasks", []) if isinstance(told, dict) else []
        states = [each["state"] for each in tasks]
        assert "FAILED" not in states, tasks
        return bool(states) and set(states) == {"RUNNING"}

    def _told(self, path: str) -> object:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body) if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()
