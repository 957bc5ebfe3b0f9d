"""One Trino server that reads Iceberg tables in folders of this machine, asked over HTTP.

Its catalog is a folder of its own: a table is made known by the path of a metadata file, so that
nothing of what wrote the table is needed. Only the Iceberg connector is loaded.
"""

import http.client
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.parts import install
from tests.parts.process import Child, free_port

CONFIG = """coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
node.environment=test
node.id=one
node.bind-ip=127.0.0.1
node.internal-address=127.0.0.1
plugin.dir={parts}/plugin
query.max-memory-per-node=256MB
memory.heap-headroom-per-node=256MB
catalog.management=dynamic
catalog.store=memory
"""
START_S = 300.0
USER = {"X-Trino-User": "frazil", "X-Trino-Time-Zone": "UTC"}


class TrinoServer:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._numbers = itertools.count()
        parts = install.trino()
        config = folder / "config.properties"
        config.write_text(CONFIG.format(port=self.port, folder=folder, parts=parts))
        self.child = Child(
            [
                *(str(install.jre_25()), "-Xmx1g", "-XX:+UseSerialGC"),
                *("-XX:TieredStopAtLevel=1", "-Djdk.attach.allowAttachSelf=true"),
                *("--sun-misc-unsafe-memory-access=allow", f"-Dconfig={config}"),
                f"-Dnode.data-dir={folder}/data",
                *("-cp", f"{parts / 'lib'}/*", "io.trino.server.TrinoServer"),
            ],
            log=folder / "trino.log",
        )

    def start(self) -> None:
        log = self.child.log
        self.child.start(
            lambda: "SERVER STARTED" in log.read_text(errors="replace"), seconds=START_S
        )
        self.add_catalog(
            "lake",
            {
                "iceberg.catalog.type": "TESTING_FILE_METASTORE",
                "hive.metastore.catalog.dir": f"file://{self._folder}/metastore",
                "iceberg.register-table-procedure.enabled": "true",
            },
        )
        self.query(f"CREATE SCHEMA lake.db WITH (location = 'file://{self._folder}/db')")

    def stop(self) -> None:
        self.child.stop()

    def register(self, metadata: Path) -> str:
        """Make the table that this metadata file describes known; its name in queries."""
        name = f"table_{next(self._numbers)}"
        self.query(
            f"CALL lake.system.register_table('db', '{name}', "
            f"'file://{metadata.parent.parent}', '{metadata.name}')"
        )
        return f"lake.db.{name}"

    def add_catalog(self, name: str, properties: Mapping[str, str]) -> None:
        """Does what a file `etc/catalog/<name>.properties` does, for tables in folders."""
        more = {**properties, "fs.hadoop.enabled": "true"}
        said = ", ".join(f"\"{key}\" = '{value}'" for key, value in more.items())
        self.query(f"CREATE CATALOG {name} USING iceberg WITH ({said})")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows. Raises AssertionError with Trino's message when it refuses."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", "/v1/statement", sql.encode(), USER)
            rows: list[tuple[Any, ...]] = []
            while True:
                answer = json.loads(connection.getresponse().read())
                assert "error" not in answer, answer["error"]["message"]
                rows += [tuple(row) for row in answer.get("data", ())]
                if "nextUri" not in answer:
                    return rows
                path = answer["nextUri"].split(f":{self.port}", 1)[1]
                connection.request("GET", path, headers=USER)
        finally:
            connection.close()
