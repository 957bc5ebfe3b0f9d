"""Who is believed where the store is, and to whom nobody is sent on."""

import pytest

from iceberg_export.errors import AgentError, PlanError, SettingsError
from iceberg_export.plan.agent_client import AgentClient
from iceberg_export.plan.splits import StoreAddress
from iceberg_export.plan.trust import PinnedStore, check_store, is_believed, told_registry
from iceberg_export.runs.export import export_topic
from iceberg_export.settings import parse
from iceberg_export.typed import registry_client
from iceberg_export.typed.registry_client import RegistryClient, RegistryError
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import World, make_job, some_records

FAR = "http://agent.example:9094"
PLAIN = StoreAddress("s3://bucket/prefix", None, None, path_style=False)
OTHER = PLAIN._replace(endpoint="http://thief.example:9000")


@pytest.mark.parametrize(
    ("address", "believed"),
    [
        ("http://127.0.0.1:9094", True),
        ("http://127.8.9.1:9094", True),
        ("http://localhost:9094", True),
        ("http://[::1]:9094", True),
        ("https://agent.example:9094", True),
        (FAR, False),
        ("http://10.0.0.1:9094", False),
        ("http://127.0.0.1.example:9094", False),
        ("http://localhost.example:9094", False),
        ("http://localhost@agent.example:9094", False),
    ],
)
def test_an_agent_on_this_machine_or_behind_https_is_believed(address, believed):
    assert is_believed(address) == believed


@pytest.mark.parametrize("told", [PLAIN, OTHER])
def test_whatever_an_agent_says_that_is_believed_is_taken(told):
    check_store(told, PinnedStore(), ["http://localhost:9094", "https://agent.example"])


@pytest.mark.parametrize(
    ("told", "pinned", "missing"),
    [
        (PLAIN, PinnedStore(), "set store.url=s3://bucket/prefix if"),
        (
            OTHER,
            PinnedStore(),
            "set store.url=s3://bucket/prefix and store.endpoint=http://thief.example:9000 if",
        ),
        (OTHER, PinnedStore("s3://bucket/prefix"), "set store.endpoint=http://thief"),
        (OTHER, PinnedStore(endpoint="http://minio:9000"), "set store.url=s3://bucket/prefix if"),
    ],
)
def test_who_answers_over_plain_http_from_elsewhere_names_no_store(told, pinned, missing):
    with pytest.raises(SettingsError) as caught:
        check_store(told, pinned, ["http://localhost:9094", FAR])
    assert missing in str(caught.value)
    assert str(caught.value).startswith(f"agent {FAR} says over plain HTTP")


def test_a_store_that_the_settings_name_may_be_planned_by_anybody():
    check_store(PLAIN, PinnedStore("s3://bucket/prefix/"), [FAR])
    check_store(OTHER, PinnedStore("s3://bucket/prefix", "http://minio:9000"), [FAR])


@pytest.mark.parametrize("agent", [FAR, "http://localhost:9094"])
def test_an_agent_that_says_another_store_than_the_settings_is_refused(agent):
    with pytest.raises(
        PlanError, match=r"chunks are in s3://bucket/prefix, store\.url says s3://b"
    ):
        check_store(PLAIN, PinnedStore("s3://b", "http://minio"), [agent])


@pytest.mark.parametrize("region", ["evil.example/#", "a b", "", "x" * 65])
def test_a_region_that_would_be_another_host_is_refused(region):
    with pytest.raises(PlanError, match="which is none"):
        check_store(PLAIN._replace(region=region), PinnedStore(), ["http://localhost"])


def test_an_export_reads_no_store_that_a_stranger_names(tmp_path, monkeypatch):
    world = World(tmp_path / "store")
    world.create("orders", 1)
    world.commit("orders", {0: [some_records(3)]})
    with served(world) as address:
        job = make_job(address, tmp_path / "data")
        port = address.rpartition(":")[2]
        monkeypatch.setattr("iceberg_export.plan.trust.is_believed", lambda one: False)
        (topic,) = job.client.topics().topics
        with pytest.raises(SettingsError, match=f"set store.url=file://{tmp_path}"):
            export_topic(job, topic)
        pinned = PinnedStore(f"file://{tmp_path}/store")
        client = AgentClient(
            [f"http://127.0.0.1:{port}"], timeout_ms=5000, sleep=lambda _seconds: None, store=pinned
        )
        assert export_topic(job._replace(client=client), topic).rows == 3
        job.catalog.engine.dispose()


def asked(settings, topic, told):
    return told_registry(settings.values, settings.agents, topic, told)


def registry_settings(tmp_path, *assignments):
    return parse(data=tmp_path, config=None, assignments=assignments)


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("http://127.0.0.1:9094", "http://127.0.0.1:18081"),
        ("http://localhost:9094", "http://[::1]:18081"),
        ("http://localhost:9094", "http://registry.example"),
        ("https://agent.example", "http://registry.example/path"),
        (FAR, "http://agent.example:8081"),
        (f"{FAR},http://other.example:9094", "http://OTHER.example:8081"),
    ],
)
def test_a_registry_is_taken_from_agents_that_are_believed_or_where_an_agent_is(
    tmp_path, agent, told
):
    assert asked(registry_settings(tmp_path, f"agent={agent}"), "orders", told) == told


@pytest.mark.parametrize(
    ("agents", "told"),
    [
        (f"http://localhost:9094,{FAR}", "http://thief.example:8081"),
        (FAR, "http://127.0.0.1:8081"),
    ],
)
def test_who_answers_over_plain_http_from_elsewhere_names_no_registry_elsewhere(
    tmp_path, agents, told
):
    settings = registry_settings(tmp_path, f"agent={agents}")
    with pytest.raises(SettingsError, match=rf"set schema\.registry\.url={told} if") as caught:
        asked(settings, "orders", told)
    assert str(caught.value).startswith(f"agent {FAR} says over plain HTTP")


SECRETS = (
    "schema.registry.basic.auth.user.info=me:secret",
    "schema.registry.bearer.auth.token=secret",
    "schema.registry.bearer.auth.token.file=/token",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("agent", "told", "goes"),
    [
        ("http://localhost:9094", "http://127.0.0.1:8081", True),
        (FAR, "https://agent.example:8081", True),
        (FAR, "http://agent.example:8081", False),
        ("https://agent.example", "http://agent.example:8081", False),
        ("https://agent.example", "https://registry.example", False),
        ("https://agent.example", "http://localhost:8081", False),
    ],
)
def test_credentials_go_to_no_registry_that_somebody_else_could_answer_for(
    tmp_path, secret, agent, told, goes
):
    settings = registry_settings(tmp_path, f"agent={agent}", secret)
    if goes:
        assert asked(settings, "orders", told) == told
        return
    with pytest.raises(SettingsError, match=rf"set schema\.registry\.url={told} if") as caught:
        asked(settings, "orders", told)
    assert str(caught.value).startswith(secret.partition("=")[0])


def test_a_stranger_beside_an_agent_of_this_machine_names_none_of_its_ports(tmp_path):
    settings = registry_settings(tmp_path, "agent=http://localhost:9094,http://agent.example:9094")
    with pytest.raises(
        SettingsError, match=r"agent http://agent\.example:9094 says over plain HTTP"
    ):
        asked(settings, "orders", "http://127.0.0.1:6666")


@pytest.mark.parametrize("told", ["ftp://x", "registry:8081", "http://me@thief.example", "http://"])
def test_a_registry_that_is_no_url_is_refused(tmp_path, told):
    with pytest.raises(PlanError, match="which is no URL"):
        asked(registry_settings(tmp_path), "orders", told)


def test_without_any_registry_the_topic_and_the_setting_are_named(tmp_path):
    with pytest.raises(
        SettingsError, match=r"topic orders needs schemas.*set schema\.registry\.url"
    ):
        asked(registry_settings(tmp_path), "orders", "")


class Redirecting:
    """Sends everybody on, with a 302."""

    def __init__(self, to):
        self.to = to
        self.asked = 0

    def respond(self, asked):
        self.asked += 1
        return 302, self.to + asked.path


class Listening:
    def __init__(self):
        self.headers = []

    def respond(self, asked):
        self.headers.append(asked.headers)
        return 200, {"cluster_id": "c", "topics": []}


def test_an_agent_that_sends_the_exporter_on_is_not_followed():
    other = Listening()
    with served(other) as there, served(Redirecting(there)) as here:
        client = AgentClient([here], timeout_ms=5000, sleep=lambda _seconds: None)
        with pytest.raises(AgentError):
            client.topics()
    assert other.headers == []


def test_credentials_of_a_registry_go_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(registry_client, "PAUSE_S", 0)
    other = Listening()
    with served(other) as there, served(Redirecting(there)) as here:
        told = [f"schema.registry.url={here}", "schema.registry.bearer.auth.token=secret"]
        settings = parse(data=tmp_path, config=None, assignments=told)
        client = RegistryClient(settings.values, told=str, sleep=lambda _seconds: None)
        with pytest.raises(RegistryError):
            client.by_id(1)
    assert other.headers == []
