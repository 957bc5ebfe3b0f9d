"""`frazil dev`: one agent with everything embedded, and what to do with it, in words.

Its settings are ordinary ones with other defaults: a folder as object store, SQLite as log, only
this machine's addresses. With `--secure` it speaks SASL_SSL, and makes its users and their rights
itself, once, by asking the agent as any client would. It imports next to nothing until it is to do
something, so that the agent's ports are ajar early (`broker.doors`). Left out: running it
(`broker.process`), and what lies in the folder of secrets (`broker.trial.secure_dev`).
"""

import errno
import os
import socket
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from protocol.fault_codes import FaultCode, FaultError, fault_of

if TYPE_CHECKING:
    from broker.agent import Agent
    from broker.cli.acl_tool import AclsWanted
    from broker.trial.secure_dev import SecureFolder

REGISTRY_PORT = 8081
"""Where schema registries are, by custom."""

PRIVATE = 0o077
"""Of new files and folders: nothing for group and others."""
ASK_MS = 30_000


class DataError(FaultError):
    """The data folder cannot be used; the sentence says why."""


def defaults(
    *, port: int, http_port: int, registry_port: int, data: Path, bind: str | None = None
) -> dict[str, str]:
    """Settings that `frazil dev` has before anything is set. `bind`: where clients are let in, if not from this
    machine alone; they are told localhost in any case, as in a container whose ports this machine has."""
    folder = data.absolute()
    return {
        "listen": f"{bind or 'localhost'}:{port}",
        "advertise": "localhost" if bind else "",
        "http": f"127.0.0.1:{http_port}",
        "schema.registry.listeners": registry_listener(registry_port, bind or "127.0.0.1"),
        "store": f"file://{quote(str(folder))}/objects",
        "log": f"sqlite://{folder}/log.db",
        "node.name": "dev",
        # A disk answers so soon that nothing is gained by more under way, and each node is a connection
        # and a thread of every producer: 40 transactional ones commit half as often with 8.
        "frazil.nodes.per.agent": "1",
        "logs.level": "warning",
    }


def secure_defaults(
    folder: "SecureFolder", *, port: int, bind: str | None = None
) -> dict[str, str]:
    """Those that `--secure` adds."""
    from broker.trial.secure_dev import LISTENER

    told = {"advertised.listeners": f"{LISTENER}://localhost:{port}"} if bind else {}
    return {"listeners": f"{LISTENER}://{bind or 'localhost'}:{port}", **told, **folder.settings}


async def make_users(folder: "SecureFolder", agent: "Agent") -> None:
    """Write the files of clients, and make users and rights where that was never done.

    The administrator logs in by PLAIN, whose users are in the settings. Raises AgentError.
    """
    from broker.agent import AgentError
    from broker.cli import acl_tool, user_tool
    from broker.cli.command_result import ToolError
    from broker.cli.kafka_client import Address, ClientError, KafkaClient
    from broker.client.client_settings import client_settings_of
    from broker.client.client_tls import client_context
    from broker.config import properties_text
    from broker.config.first_users import ITERATIONS_MIN
    from broker.sasl.client import Login
    from broker.sasl.plain import PLAIN
    from broker.trial.secure_dev import ADMIN, LISTENER, MECHANISM
    from protocol.errors import KafkaError

    listening = agent.listening()
    if LISTENER not in listening:
        raise AgentError(f"--secure needs the listener {LISTENER}: leave listeners as they are")
    _, port = listening[LISTENER]
    folder.write_clients(f"localhost:{port}")
    if folder.users_made:
        return
    file = folder.path / "admin.properties"
    text = file.read_text(encoding="utf-8")
    settings = client_settings_of(dict(properties_text.parse(str(file), text)))
    assert settings.tls is not None
    client = KafkaClient(
        [Address("localhost", port)],
        timeout_ms=ASK_MS,
        login=Login(PLAIN, ADMIN, folder.passwords[ADMIN]),
        tls=client_context(settings.tls),
    )
    try:
        async with client:
            for user, password in folder.passwords.items():
                await user_tool.create(
                    client, user, password, mechanism=MECHANISM, iterations=ITERATIONS_MIN
                )
            await acl_tool.add(client, _rights().bindings())
    except (ClientError, ToolError, KafkaError) as error:
        text = f"the users of --secure cannot be made: {error}"
        raise AgentError(text, fault=fault_of(error)) from error
    folder.remember_users()


def _rights() -> "AclsWanted":
    """Of the user app: everything with all topics, groups and transactional ids; nothing else."""
    from broker.cli.acl_tool import AclsWanted, ResourcePattern
    from broker.trial.secure_dev import APP
    from protocol.acls import Operation, Permission, ResourceType

    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    return AclsWanted(
        [ResourcePattern(kind, "*") for kind in kinds],
        [(Permission.ALLOW, f"User:{APP}")],
        [],
        [Operation.ALL],
    )


def registry_listener(port: int, host: str = "127.0.0.1") -> str:
    """Where the schema registry answers; nowhere when somebody else has the port.

    Nobody who wants to try Kafka should be kept from it by another registry.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return ""
    return f"http://{host}:{port}"


def prepare(data: Path) -> None:
    """Make the data folder and see that it can be written. Raises DataError.

    What this process makes from now on is its user's alone: records, the log, what is exported
    beside them. A folder that is there stays as it is: somebody may have chosen so.
    """
    from storage.stores.disk import make_folder

    os.umask(PRIVATE)
    if data.exists() and not data.is_dir():
        raise DataError(
            f"{data} is not a folder (choose another with --data)",
            fault=FaultCode.DATA_FOLDER_DENIED,
        )
    probe = data / ".writable"
    try:
        make_folder(data / "objects")
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise DataError(
            f"the data folder {data} cannot be used: {error.strerror} (choose another with --data)",
            fault=FaultCode.DISK_FULL if full else FaultCode.DATA_FOLDER_DENIED,
        ) from error


def greeting(
    listening: Mapping[str, tuple[str, int]],
    *,
    data: Path,
    command: str = "frazil",
    secure: bool = False,
    https: Container[str] = (),
) -> str:
    """What is printed when the agent takes clients in: where it is and how to use it.

    `command` is how this program is called from where the user is. `secure`: clients need the files
    that lie below `data`; nothing of what is in them is printed. `https`: which of the HTTP listeners
    speak TLS.
    """
    scheme = {name: "https" if name in https else "http" for name in ("http", "registry")}
    _, port = next(value for name, value in listening.items() if name not in scheme)
    server = f"localhost:{port}"
    lines = ["Frazil is running.", "", f"  Kafka clients    {server}"]
    if secure:
        from broker.trial.secure_dev import ADMIN, APP, LISTENER

        lines[-1] += f" by {LISTENER}, with what is in {data / 'secure'}:"
        lines += [
            f"                   client.properties ({APP}: Java's clients, Kafka's tools, frazil's)",
            f"                   librdkafka.config, kafka_python.py ({APP})",
            f"                   admin.properties ({ADMIN}, who may do everything)",
        ]
    admin = None
    if "http" in listening:
        admin = f"{scheme['http']}://127.0.0.1:{listening['http'][1]}"
        lines.append(f"  a console        {admin}/")
        lines.append(f"  health, metrics  {admin}/health/ready  {admin}/metrics")
    if "registry" in listening:
        registry = f"{scheme['registry']}://127.0.0.1:{listening['registry'][1]}"
        lines.append(f"  schema registry  {registry}")
    else:
        lines.append("  schema registry  not there (its port is taken; schema.registry.listeners)")
    lines += [f"  data             {data}", ""]
    lines += _examples(server, command, data / "secure" if secure else None)
    if admin is not None:
        data_flag = "" if data == Path("frazil-data") else f" --data {data}"
        agent_flag = "" if admin == "http://127.0.0.1:9094" else f" --agent {admin}"
        lines += [
            f"  export   {command} export run --once{data_flag}{agent_flag}",
            f"  look     {command} log tail{agent_flag}",
        ]
    lines += ["", "Ctrl-C stops it; the data stays."]
    return "\n".join(lines)


def _examples(server: str, command: str, secure: Path | None) -> list[str]:
    """How clients are called; `secure` has the files that they need then."""
    produce = f"kafka-console-producer.sh --bootstrap-server {server} --topic hello"
    consume = f"kafka-console-consumer.sh --bootstrap-server {server} --topic hello"
    if secure is None:
        bootstrap_flag = "" if server == "localhost:9092" else f" --bootstrap {server}"
        return [
            f"  produce  {command} produce hello{bootstrap_flag}      (a line is a record, Ctrl-D ends)",
            f"           {produce}",
            f"  consume  {command} consume hello --group readers{bootstrap_flag}",
            f"           {consume} \\",
            "             --group readers --from-beginning",
            f"  lag      {command} group describe readers{bootstrap_flag}",
        ]
    # --command-config is new in Kafka 4.2; these names all know.
    properties, config = secure / "client.properties", secure / "librdkafka.config"
    return [
        f"  produce  {command} produce hello --command-config {properties}",
        f"           {produce} \\",
        f"             --producer.config {properties}",
        f"           kcat -P -F {config} -t hello",
        f"  consume  {command} consume hello --group readers --command-config {properties}",
        f"           {consume} \\",
        f"             --group readers --from-beginning --consumer.config {properties}",
        f"           kcat -F {config} -X auto.offset.reset=earliest -G readers hello",
        f"  lag      {command} group describe readers --command-config {properties}",
    ]
