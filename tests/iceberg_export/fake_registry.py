"""A schema registry for tests of the exporter: what Confluent's answers for ids and subjects.

Enough of it for readers of schemas; whoever writes through real serializers needs the agents' own.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit
from uuid import UUID


class FakeRegistry:
    """Schemas by id, and subjects as lists of ids."""

    def __init__(self):
        self.schemas: dict[int, dict] = {}
        self.subjects: dict[str, list[int]] = {}
        self.refuse = lambda _path: None
        """A (status, body) to answer instead."""
        self.requests: list[str] = []
        self.authorization: list[str | None] = []

    def register(self, subject: str, schema, kind: str = "AVRO", references=()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_id = len(self.schemas) + 1
        self.schemas[schema_id] = {"schema": text, "references": list(references)}
        self.schemas[schema_id]["guid"] = str(UUID(int=0xABC << 100 | schema_id))
        if kind != "AVRO":
            self.schemas[schema_id]["schemaType"] = kind
        self.subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def by_guid(self, schema_id: int, found: dict) -> dict:
        """As the agents' registry has it; Confluent's does not tell the id there."""
        return found | {"id": schema_id}

    def answer(self, path: str) -> tuple[int, object]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "no schema"})
        if parts[:2] == ["schemas", "guids"]:
            for schema_id, found in self.schemas.items():
                if found["guid"] == parts[2]:
                    ids = [{"context": ".other", "id": 7}, {"context": ".", "id": schema_id}]
                    return 200, ids if parts[3:] == ["ids"] else self.by_guid(schema_id, found)
            return 404, {"error_code": 40403, "message": "no schema"}
        assert parts[0] == "subjects"
        assert parts[2] == "versions"
        ids = self.subjects.get(parts[1])
        if ids is None:
            return 404, {"error_code": 40401, "message": "no subject"}
        if len(parts) == 3:
            return 200, list(range(1, len(ids) + 1))
        number = len(ids) if parts[3] == "latest" else int(parts[3])
        if not 1 <= number <= len(ids):
            return 404, {"error_code": 40402, "message": "no version"}
        schema_id = ids[number - 1]
        said = {"subject": parts[1], "version": number, "id": schema_id}
        return 200, said | self.schemas[schema_id]


@contextmanager
def served_registry(registry: FakeRegistry):
    """The registry on a free port of the loopback; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            registry.requests.append(self.path)
            registry.authorization.append(self.headers.get("Authorization"))
            status, found = registry.refuse(self.path) or registry.answer(self.path)
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
