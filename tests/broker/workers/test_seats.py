"""How the workers of one machine differ, and when they cannot share it."""

import pytest

from broker.config.settings import MiB, Settings, load
from broker.config.values import SettingsError
from broker.workers import seats
from broker.workers.seats import Seat
from coordinator.tables.incarnations import NODE_NAME_MAX

PLACE = {"store": "s3://bucket/prefix", "log": "etcd://etcd:2379/prefix"}
BOUND = {"PLAINTEXT": 9092}


def settings_of(**given: str) -> Settings:
    texts = PLACE | {name.replace("__", "."): text for name, text in given.items()}
    return load(defaults=texts, toml=None, environ={}, flags=()).settings


def seat(number: int, *, workers: int = 2, first_name: str = "pod-0", **listen: int) -> Seat:
    return Seat(number, workers, first_name, listen or BOUND, (9094,), ())


@pytest.mark.parametrize(
    ("available", "cpu_max", "workers"),
    [
        (8, "", 8),
        (8, "max 100000", 8),
        (8, "200000 100000", 2),
        (8, "250000 100000", 3),
        (8, "50000 100000", 1),
        (2, "800000 100000", 2),
        (4, "nonsense", 4),
        (0, "", 1),
    ],
)
def test_auto_is_a_worker_for_each_core_that_the_process_may_use(
    available: int, cpu_max: str, workers: int
) -> None:
    assert seats.cores(available, cpu_max) == workers


def test_the_first_worker_keeps_the_name_of_a_single_agent_and_so_its_node_id() -> None:
    settings = settings_of(node__name="pod-0")
    names = [seats.settings_of(settings, seat(number)).node_name for number in (1, 2, 3)]
    assert names == ["pod-0", "pod-0/w2", "pod-0/w3"]
    unnamed = seats.node_name(settings_of(), ports=BOUND, host_name="machine")
    assert unnamed == "machine:9092"


def test_a_long_name_is_cut_before_what_tells_workers_apart() -> None:
    long = seat(2, first_name="x" * NODE_NAME_MAX)
    name = seats.settings_of(settings_of(), long).node_name
    assert len(name) == NODE_NAME_MAX
    assert name.endswith("xx/w2")


def test_a_node_id_that_is_set_is_the_first_ones_and_the_others_are_far_from_it() -> None:
    ids = [seats.settings_of(settings_of(node__id="3"), seat(each)).node_id for each in (1, 2)]
    assert ids == [3, 1003]
    ids = [seats.settings_of(settings_of(), seat(each)).node_id for each in (1, 2)]
    assert ids == [-1, -1]


def test_every_worker_is_told_to_clients_with_a_port_of_its_own() -> None:
    settings = settings_of(
        listeners="PLAINTEXT://0.0.0.0:9092,LOCAL://127.0.0.1:9093",
        listener__security__protocol__map="PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT",
    )
    assert seats.own_ports(settings, 1) == {"PLAINTEXT": 9192, "LOCAL": 9193}
    assert seats.own_ports(settings, 2) == {"PLAINTEXT": 9292, "LOCAL": 9293}


def test_an_advertised_port_follows_as_the_port_itself_does() -> None:
    second = seats.settings_of(settings_of(advertise="PLAINTEXT://gate:19092"), seat(2))
    assert [(each.host, each.port) for each in second.advertise] == [("gate", 19292)]
    second = seats.settings_of(settings_of(advertise="PLAINTEXT://gate"), seat(2))
    assert [(each.host, each.port) for each in second.advertise] == [("gate", None)]


def test_clients_are_told_one_address_of_an_agent_and_one_of_each_worker() -> None:
    settings = settings_of(advertise="PLAINTEXT://gate:19092")
    assert [tuple(each) for each in seats.told_addresses(settings, 1, host_name="pod")] == [
        ("PLAINTEXT", "gate", 19092)
    ]
    ports = [each.port for each in seats.told_addresses(settings, 2, host_name="pod")]
    assert ports == [19192, 19292]
    own = seats.told_addresses(settings_of(listen="0.0.0.0:9092"), 2, host_name="pod")
    assert [(each.host, each.port) for each in own] == [("pod", 9192), ("pod", 9292)]


def test_shared_ports_are_those_that_were_bound() -> None:
    settings = settings_of(listen="127.0.0.1:0", http="127.0.0.1:0")
    own = seats.settings_of(settings, seat(2, PLAINTEXT=4711))
    assert [each.port for each in own.listen] == [4711]
    assert own.http is not None
    assert own.http.port == 9094
    assert seats.own_ports(settings, 2) == {"PLAINTEXT": 0}


def test_memory_of_the_machine_is_shared_out() -> None:
    own = seats.settings_of(settings_of(), seat(1, workers=4))
    assert own.cache_bytes == 64 * MiB
    assert own.produce_buffer_bytes == 64 * MiB
    assert own.telemetry_metrics_bytes == MiB


def test_each_worker_has_at_least_what_an_agent_needs() -> None:
    own = seats.settings_of(settings_of(cache__bytes="2MiB"), seat(1, workers=64))
    assert own.cache_bytes == MiB
    assert own.produce_buffer_bytes == 2 * own.chunk_bytes_max


def test_settings_that_two_can_share_are_not_complained_of() -> None:
    assert seats.contradictions(settings_of(), 2) == []
    listeners = "PLAINTEXT://10.0.0.1:9092,OTHER://10.0.0.2:9092"
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    two = settings_of(listeners=listeners, listener__security__protocol__map=protocols)
    assert seats.contradictions(two, 2) == []
    assert seats.contradictions(settings_of(listen="127.0.0.1:0", http="127.0.0.1:0"), 8) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"log": "sqlite:///var/log.db"}, "2 cannot share log=sqlite:"),
        ({"store": "memory://"}, "2 cannot share store=memory:"),
        (
            {"workers__port__step": "2"},
            "the port 9094 of worker 1 at listener PLAINTEXT is that of",
        ),
        ({"listen": "0.0.0.0:65400"}, "the port 65600 of worker 2 at listener PLAINTEXT is more"),
        (
            {"listen": "A://0.0.0.0:9092,B://127.0.0.1:9192"},
            "the port 9192 of worker 1 at listener A is that of listener B",
        ),
    ],
)
def test_what_workers_cannot_share_is_told_before_anything_is_started(
    given: dict[str, str], told: str
) -> None:
    mistakes = seats.contradictions(settings_of(**given), 2)
    assert [each for each in mistakes if told in each], mistakes


def test_a_seat_comes_back_from_json() -> None:
    sent = seat(2)._asdict() | {"http": [9094], "registry": []}
    assert Seat.of_json(sent) == seat(2)


@pytest.mark.parametrize("text", ["0", "65", "two", "-1"])
def test_a_number_of_workers_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="workers"):
        settings_of(workers=text)
