"""The keys of a cluster in etcd as lines of text, and a new etcd that has them at their revisions.

A position in the log is a revision of etcd, so a restored key has to be put at the revision that it
had. Keys with a lease are left out: whoever had them is gone.
"""

import base64
import json
import urllib.request
from collections import defaultdict
from typing import Any

from tests.parts.servers import EtcdServer

FILLER = "/filler"


def dump(etcd: EtcdServer, prefix: str) -> str:
    """A line for each key: revision, key, value in hexadecimal digits; in order of revisions."""
    answer = _ask(etcd, "range", key=_coded(prefix), range_end=_coded(prefix + "\xff"))
    rows = [
        (
            int(pair["mod_revision"]),
            base64.b64decode(pair["key"]).decode(),
            base64.b64decode(pair.get("value", "")).hex(),
        )
        for pair in answer["kvs"]
        if pair.get("lease", "0") == "0"
    ]
    return "".join(f"{revision} {key} {value}\n" for revision, key, value in sorted(rows))


def restore(etcd: EtcdServer, text: str) -> None:
    """Put all keys; nothing may have been put before."""
    puts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in text.splitlines():
        revision, key, value = line.split(" ")
        coded = base64.b64encode(bytes.fromhex(value)).decode()
        puts[int(revision)].append({"request_put": {"key": _coded(key), "value": coded}})
    filler = [{"request_put": {"key": _coded(FILLER)}}]
    for revision in range(2, max(puts) + 1):
        answer = _ask(etcd, "txn", success=puts.get(revision, filler))
        assert int(answer["header"]["revision"]) == revision


def _coded(text: str) -> str:
    return base64.b64encode(text.encode("latin-1")).decode()


def _ask(etcd: EtcdServer, call: str, **fields: object) -> Any:
    request = urllib.request.Request(f"{etcd.url}/v3/kv/{call}", data=json.dumps(fields).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())
