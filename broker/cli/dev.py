"""`frazil dev`: one agent with everything embedded, and what to do with it, in words.

Its settings are ordinary ones with other defaults: a folder as object store, SQLite as log, only
this machine's addresses. Left out: running it (`broker.process`).
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

REGISTRY_PORT = 8081
"""Where schema registries are, by custom."""
PUTS_PER_SECOND = 100
"""A PUT into a folder costs an fsync, not money."""


PRIVATE = 0o077
"""Of new files and folders: nothing for group and others."""


class DataError(Exception):
    """The data folder cannot be used; the sentence says why."""


def defaults(*, port: int, http_port: int, registry_port: int, data: Path) -> dict[str, str]:
    """Settings that `frazil dev` has before anything is set."""
    folder = data.absolute()
    return {
        "listen": f"localhost:{port}",
        "http": f"127.0.0.1:{http_port}",
        "schema.registry.listeners": registry_listener(registry_port),
        "store": f"file://{quote(str(folder))}/objects",
        "log": f"sqlite://{folder}/log.db",
        "node.name": "dev",
        "puts.per.second": str(PUTS_PER_SECOND),
        "logs.level": "warning",
    }


def registry_listener(port: int) -> str:
    """Where the schema registry answers; nowhere when somebody else has the port.

    Nobody who wants to try Kafka should be kept from it by another registry.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return ""
    return f"http://127.0.0.1:{port}"


def prepare(data: Path) -> None:
    """Make the data folder and see that it can be written. Raises DataError.

    What this process makes from now on is its user's alone: records, the log, what is exported
    beside them. A folder that is there stays as it is: somebody may have chosen so.
    """
    os.umask(PRIVATE)
    if data.exists() and not data.is_dir():
        raise DataError(f"{data} is not a folder (choose another with --data)")
    probe = data / ".writable"
    try:
        (data / "objects").mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise DataError(
            f"the data folder {data} cannot be used: {error.strerror} (choose another with --data)"
        ) from error


def greeting(
    listening: Mapping[str, tuple[str, int]], *, data: Path, command: str = "frazil"
) -> str:
    """What is printed when the agent takes clients in: where it is and how to use it.

    `command` is how this program is called from where the user is.
    """
    others = ("http", "registry")
    _, port = next(value for name, value in listening.items() if name not in others)
    server = f"localhost:{port}"
    bootstrap_flag = "" if port == 9092 else f" --bootstrap {server}"
    lines = ["Frazil is running.", "", f"  Kafka clients    {server}"]
    admin = None
    if "http" in listening:
        admin = f"http://127.0.0.1:{listening['http'][1]}"
        lines.append(f"  health, metrics  {admin}/health/ready  {admin}/metrics")
    if "registry" in listening:
        lines.append(f"  schema registry  http://127.0.0.1:{listening['registry'][1]}")
    else:
        lines.append("  schema registry  not there (its port is taken; schema.registry.listeners)")
    lines += [
        f"  data             {data}",
        "",
        f"  produce  kafka-console-producer.sh --bootstrap-server {server} --topic hello",
        f"           kcat -P -b {server} -t hello",
        f"  consume  kafka-console-consumer.sh --bootstrap-server {server} --topic hello \\",
        "             --group readers --from-beginning",
        f"           kcat -b {server} -X auto.offset.reset=earliest -G readers hello",
        f"  lag      {command} group describe readers{bootstrap_flag}",
    ]
    if admin is not None:
        data_flag = "" if data == Path("frazil-data") else f" --data {data}"
        agent_flag = "" if admin == "http://127.0.0.1:9094" else f" --agent {admin}"
        lines += [
            f"  export   {command} export run --once{data_flag}{agent_flag}",
            f"  look     {command} log tail{agent_flag}",
        ]
    lines += ["", "Ctrl-C stops it; the data stays."]
    return "\n".join(lines)
