"""Run with a release's package in front of the path: its machine, over the entries that come in.

    machine_of.py PACKAGE    the numbers of the commands that it reads, as JSON, when nothing comes in;
                             else what it was behind each entry: its digest, and that of its snapshot

Only what a release has is imported, and modules have moved since the first one.
"""

import json
import sys
from collections.abc import Iterable
from hashlib import blake2b
from importlib import import_module
from struct import Struct
from typing import Any, Final

HEAD: Final = Struct("<QI")
"""Of an entry on the way here: its position, and how many bytes follow."""


def digest_of(parts: Iterable[bytes]) -> str:
    """Of a snapshot, short enough to be told behind every entry."""
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def _found(*names: str) -> Any:
    """The first of these that the release has, each a module and what is in it."""
    for name in names:
        module, _, wanted = name.partition(":")
        try:
            return getattr(import_module(module), wanted)
        except ImportError:
            continue
    raise ImportError(names)


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    data, at = sys.stdin.buffer.read(), 0
    if not data:
        readers = _found("coordinator.commands.declaration:READERS", "coordinator.codec:_DECODERS")
        print(json.dumps(sorted(readers)))
        return
    decode = _found("coordinator.commands.codec:decode_entry", "coordinator.codec:decode_entry")
    dump = _found("coordinator.snapshot.snapshot:dump", "coordinator.snapshot:dump")
    machine = _found("coordinator.machine.machine:Machine", "coordinator.machine:Machine")()
    seen = []
    while at < len(data):
        position, length = HEAD.unpack_from(data, at)
        at += HEAD.size + length
        machine.apply(position, decode(data[at - length : at]))
        seen.append([machine.digest().hex(), digest_of(dump(machine))])
    print(json.dumps({"seen": seen, "snapshot": [bytes(part).hex() for part in dump(machine)]}))


if __name__ == "__main__":
    main()
