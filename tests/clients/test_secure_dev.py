"""`frazil dev --secure`, as somebody who has just started it: what was printed, and what lies in its folder."""

import contextlib
import io
import runpy
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from broker.cli.main import main
from broker.trial.authority import Validity, new_authority
from tests.clients import commands
from tests.clients.kafka_tools import ACLS, CONFIGS, KafkaTools
from tests.parts import install
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

QUICK = ("--set", "group.initial.rebalance.delay.ms=0")
CLASSES = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
COUNT = 100


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    with FrazilDev(tmp_path_factory.mktemp("dev"), "--secure", *QUICK) as agent:
        until_greeted(agent)
        yield agent
        assert agent.stop() == 0


@pytest.fixture(scope="module")
def folder(agent: FrazilDev) -> Path:
    return agent.folder / "data" / "secure"


def until_greeted(agent: FrazilDev, times: int = 1) -> None:
    """Wait for what is printed when clients may come; what is there by then is whole."""
    deadline = time.monotonic() + 60
    while agent.child.log.read_text().count("Ctrl-C stops it") < times:
        assert time.monotonic() < deadline, agent.child.tail()
        time.sleep(0.05)


def printed(agent: FrazilDev, program: str) -> list[str]:
    """The words of the command that was printed with this program, without it."""
    text = agent.child.log.read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if f"{program} " in line]
    return shlex.split(line.partition(f"{program} ")[2])


def console(program: str, *words: str, said: str = "") -> str:
    """What one of Kafka's console tools prints."""
    java = [*install.jvm("256m"), "-cp", f"{install.kafka_jars()}/*", CLASSES[program]]
    done = subprocess.run(
        [*java, *words], input=said, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


class Told(NamedTuple):
    """What became of a command of ours."""

    returncode: int
    stdout: str
    stderr: str


def frazil(*words: str) -> Told:
    """In this process, since there are many."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return Told(code, out.getvalue(), err.getvalue())


def librdkafka(folder: Path) -> dict[str, str]:
    """The file for kcat, which has other clients' names and values too."""
    lines = (folder / "librdkafka.config").read_text().splitlines()
    return {"broker.address.family": "v4"} | dict(line.split("=", 1) for line in lines)


def test_kafkas_console_tools_work_as_printed_and_the_lag_is_told(agent: FrazilDev) -> None:
    producing, consuming = CLASSES
    console(producing, *printed(agent, producing), said="one\ntwo\n")
    ending = ("--max-messages", "2", "--timeout-ms", "30000")
    # Before it there may be a line about names that were given up.
    told = console(consuming, *printed(agent, consuming), *ending)
    assert told.splitlines()[-2:] == ["one", "two"]
    lag = frazil("group", "describe", *printed(agent, "group describe"))
    assert lag.returncode == 0, lag.stderr
    assert "hello" in lag.stdout


def test_librdkafka_writes_and_reads_with_its_file(folder: Path) -> None:
    producer = Producer(librdkafka(folder) | {"enable.idempotence": True})
    for number in range(COUNT):
        producer.produce("by-librdkafka", str(number))
    assert producer.flush(30) == 0
    group = {"group.id": "librdkafka", "auto.offset.reset": "earliest"}
    consumer = Consumer(librdkafka(folder) | group)
    consumer.subscribe(["by-librdkafka"])
    found = [consumer.poll(30) for _ in range(COUNT)]
    consumer.close()
    assert [message.value() for message in found if message] == [
        str(number).encode() for number in range(COUNT)
    ]


def test_frazils_own_commands_produce_and_consume_as_was_printed(agent: FrazilDev) -> None:
    producing, consuming = (
        printed(agent, f"frazil {command}") for command in ("produce", "consume")
    )
    assert commands.frazil("produce", *producing, given=b"one\ntwo\n") == (0, b"", "")
    assert commands.frazil("consume", *consuming, "-e") == (0, b"one\ntwo\n", "")


@pytest.mark.usefixtures("python_sockets")
def test_kafka_python_writes_and_reads_with_its_file(folder: Path) -> None:
    settings = runpy.run_path(str(folder / "kafka_python.py"))["SETTINGS"]
    producer = KafkaProducer(**settings)
    producer.send("by-kafka-python", b"hello").get(30)
    producer.close()
    consumer = KafkaConsumer(
        "by-kafka-python", **settings, group_id="python", auto_offset_reset="earliest"
    )
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


def test_kafkas_tools_and_ours_administer_with_the_administrators_file(
    agent: FrazilDev, folder: Path, tools: KafkaTools
) -> None:
    file, bootstrap = str(folder / "admin.properties"), f"localhost:{agent.port}"
    told = tools.run(ACLS, bootstrap, "--command-config", file, "--list")
    assert "(principal=User:app, host=*, operation=ALL, permissionType=ALLOW)" in told
    words = ("--command-config", file, "--describe", "--entity-type", "users")
    assert "user-principal 'app'" in tools.run(CONFIGS, bootstrap, *words)
    told_by_ours = frazil("user", "list", "--command-config", file)
    assert told_by_ours.stdout.splitlines() == [
        "admin: SCRAM-SHA-512 (4096)",
        "app: SCRAM-SHA-512 (4096)",
    ]
    assert told_by_ours.stderr == ""


def test_the_user_app_is_no_administrator(folder: Path) -> None:
    refused = frazil("user", "list", "--command-config", str(folder / "client.properties"))
    assert refused.returncode == 1
    assert "users are not told: you may not do that in this cluster" in refused.stderr


@pytest.mark.fault_code("tls-failed")
def test_our_tools_do_not_believe_another_authority(folder: Path, tmp_path: Path) -> None:
    other = new_authority("another", Validity(1_700_000_000_000, 10_000))
    (tmp_path / "ca.pem").write_bytes(other.certificate)
    text = (folder / "client.properties").read_text()
    file = tmp_path / "client.properties"
    file.write_text(text.replace(str(folder / "ca.pem"), str(tmp_path / "ca.pem")))
    refused = frazil("group", "list", "--command-config", str(file))
    assert refused.returncode == 1
    assert "its certificate is not taken" in refused.stderr
    assert refused.stderr.endswith(" [tls-failed]\n")
    assert refused.stderr.count("\n") == 1


@pytest.mark.fault_code("login-failed")
@pytest.mark.parametrize("command", [("group", "list"), ("consume", "t", "-e")])
def test_our_tools_tell_a_wrong_password_with_its_code(
    folder: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    password = (folder / "app.password").read_text().strip()
    file = tmp_path / "client.properties"
    file.write_text((folder / "client.properties").read_text().replace(password, "wrong"))
    refused = commands.frazil(*command, "--command-config", str(file))
    assert refused.code == 1
    assert refused.err.endswith(" [login-failed]\n")
    assert refused.err.count("\n") == 1


def test_our_tools_say_what_to_do_where_the_listener_speaks_tls(agent: FrazilDev) -> None:
    refused = frazil("group", "list", "--bootstrap", f"localhost:{agent.port}")
    assert refused.returncode == 1
    assert "--command-config" in refused.stderr


def test_nothing_secret_is_printed_and_files_are_their_users_alone(
    agent: FrazilDev, folder: Path
) -> None:
    told = agent.child.log.read_text()
    for user in ("admin", "app"):
        assert (folder / f"{user}.password").read_text() not in told
    assert {file.stat().st_mode & 0o077 for file in folder.iterdir()} == {0}


def test_a_restart_keeps_files_and_brings_back_no_right_that_was_taken_away(
    agent: FrazilDev, folder: Path
) -> None:
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    admin = ("--command-config", str(folder / "admin.properties"))
    removed = frazil("acl", "remove", *admin, "--allow-principal=User:app", "--group=*")
    assert removed.returncode == 0, removed.stderr
    assert agent.stop() == 0
    agent.start()
    until_greeted(agent, times=2)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files
    assert "GROUP" not in frazil("acl", "list", *admin).stdout
    producer = Producer(librdkafka(folder))
    producer.produce("by-librdkafka", b"again")
    assert producer.flush(30) == 0


def test_an_agent_for_trying_takes_the_settings_of_a_broker(tmp_path: Path) -> None:
    port = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{free_port()}\n"
        "num.partitions=3\nlog.dirs=/nowhere\n"
    )
    with FrazilDev(tmp_path / "dev", "--config", str(properties)) as agent:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
        producer.produce("wide", b"made")
        assert producer.flush(30) == 0
        assert len(producer.list_topics("wide", timeout=30).topics["wide"].partitions) == 3
        until_greeted(agent)
        assert f"Kafka clients    localhost:{port}" in agent.child.log.read_text()
