"""deploy/compose.yaml: what it gives to agents, exporter and servers is what they understand, and it fits together.

Nothing here starts a container. The same processes, on loopback, run in `test_compose_cluster`.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

# Of PyIceberg's parts; PyYAML is none.
from strictyaml.ruamel.main import YAML

from broker.cli import main as agent_cli
from broker.config.settings import Settings, load
from broker.config.values import SettingsError
from iceberg_export import settings as export_settings
from iceberg_export.cli.parser import make_parser
from tests.parts import install

DEPLOY = Path(__file__).parents[2] / "deploy"
AGENTS = ("agent1", "agent2")
MADE_UP = "development-only"


def read(name: str) -> dict[str, Any]:
    found = YAML(typ="safe", pure=True).load((DEPLOY / name).read_text())
    assert isinstance(found, dict)
    return found


COMPOSE = read("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def settings_of(agent: str) -> Settings:
    environ = SERVICES[agent]["environment"]
    return load(defaults={}, toml=None, environ=environ, flags=()).settings


def published(service: str) -> dict[int, int]:
    """This machine's ports by those of the container."""
    pairs = [one.split(":") for one in SERVICES[service].get("ports", [])]
    assert {address for address, _, _ in pairs} <= {"127.0.0.1"}, "not for others on the network"
    return {int(inside): int(outside) for _, outside, inside in pairs}


def mounts(service: str) -> dict[str, str]:
    """What lies where in the container: a file or folder of deploy/, or a volume's name."""
    told = [one.split(":") for one in SERVICES[service].get("volumes", [])]
    return {target: source for source, target, *_ in told}


def export_file() -> Path:
    return DEPLOY / mounts("exporter")["/etc/frazil/export.toml"]


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_serves_with_the_settings_that_it_is_given(agent: str) -> None:
    options = agent_cli._parser().parse_args(SERVICES[agent]["command"])
    assert options.name == "frazil serve"
    settings = settings_of(agent)
    assert settings.node_name == agent
    assert settings.store_url == "s3://frazil/agents"


def test_a_setting_that_there_is_not_would_be_found() -> None:
    with pytest.raises(SettingsError, match="FRAZIL_STORE_ENDPOITN"):
        load(
            defaults={},
            toml=None,
            environ={**SERVICES["agent1"]["environment"], "FRAZIL_STORE_ENDPOITN": "x"},
            flags=(),
        )


def test_agents_differ_by_their_names_and_addresses_alone() -> None:
    own = {"FRAZIL_NODE_NAME", "FRAZIL_ADVERTISE"}
    one, two = (SERVICES[agent]["environment"].items() for agent in AGENTS)
    assert {name for name, _ in one ^ two} == own


@pytest.mark.parametrize("agent", AGENTS)
def test_clients_are_told_names_that_they_reach_inside_and_outside(agent: str) -> None:
    settings = settings_of(agent)
    bound = {each.name: each.port for each in settings.listen}
    assert {each.host for each in settings.listen} == {"0.0.0.0"}
    told = {each.name: (each.host, each.port) for each in settings.advertise}
    assert told == {
        "INSIDE": (agent, bound["INSIDE"]),
        "OUTSIDE": ("localhost", published(agent)[bound["OUTSIDE"] or 0]),
    }
    assert (settings.http, settings.registry_listen) != (None, ())


def test_each_port_of_this_machine_is_taken_once() -> None:
    taken = [port for service in SERVICES for port in published(service).values()]
    assert sorted(taken) == [3000, 8081, 9090, 9092, 9094, 9192, 9194]


def test_the_exporter_understands_its_command_and_its_file() -> None:
    command, *arguments = SERVICES["exporter"]["command"]
    assert command == "export"
    options = make_parser().parse_args(arguments)
    assert options.command == "run"
    assert str(options.config) in mounts("exporter")
    settings = export_settings.parse(data=Path("/data"), config=export_file(), assignments=())
    assert settings.catalog["type"] == "sql"
    assert settings.spark["spark.driver.memory"] == "1g"
    assert settings.agents == tuple(f"http://{agent}:9094" for agent in AGENTS)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_exporter_says_to_agents_what_they_want_to_hear_and_finds_their_store(
    agent: str,
) -> None:
    given = export_settings.parse(data=Path("/data"), config=export_file(), assignments=())
    settings = settings_of(agent)
    assert settings.http is not None
    assert settings.http.port == 9094
    assert given["agent.token"] == settings.http_token
    assert given["store.url"] == settings.store_url
    assert given["store.endpoint"] == settings.store_endpoint
    assert given["store.access.key"] == settings.store_access_key
    assert given["store.secret.key"] == settings.store_secret_key


def test_store_and_catalog_let_in_whom_the_files_name_and_the_bucket_is_made() -> None:
    minio, postgres = SERVICES["minio"], SERVICES["postgres"]["environment"]
    given = export_settings.parse(data=Path("/data"), config=export_file(), assignments=())
    assert minio["environment"]["MINIO_ROOT_USER"] == given["store.access.key"]
    assert minio["environment"]["MINIO_ROOT_PASSWORD"] == given["store.secret.key"]
    assert given.catalog["s3.access-key-id"] == given["store.access.key"]
    assert given.catalog["s3.secret-access-key"] == given["store.secret.key"]
    assert given.catalog["s3.endpoint"] == given["store.endpoint"] == "http://minio:9000"
    assert "--address :9000 " in minio["entrypoint"][-1]
    bucket = urlsplit(given["store.url"]).netloc
    assert urlsplit(given.catalog["warehouse"]).netloc == bucket
    assert f"mkdir -p /data/{bucket} && exec minio server " in minio["entrypoint"][-1]
    uri = urlsplit(given.catalog["uri"])
    assert (uri.hostname, uri.port) == ("postgres", 5432)
    assert uri.username == postgres["POSTGRES_USER"]
    assert uri.password == postgres["POSTGRES_PASSWORD"]
    assert uri.path == f"/{postgres['POSTGRES_DB']}"


def test_servers_are_of_the_versions_that_the_tests_run() -> None:
    assert SERVICES["etcd"]["image"].endswith(f":v{install.ETCD_VERSION}")
    build = SERVICES["minio"]["build"]
    dockerfile = (DEPLOY / build["context"] / build["dockerfile"]).read_text()
    assert f"github.com/minio/minio@{install.MINIO_VERSION}\n" in dockerfile


def test_every_image_is_of_one_version_or_built_from_what_is_here() -> None:
    for name, service in SERVICES.items():
        if "image" in service:
            assert "build" not in service
            assert re.search(r":v?\d+\.\d+\.\d+$|:\d+\.\d+-alpine$", service["image"]), name
        else:
            folder = (DEPLOY / service["build"]["context"]).resolve()
            assert (folder / service["build"]["dockerfile"]).is_file()


def test_the_exporters_image_has_the_extras_that_it_needs() -> None:
    extras = SERVICES["exporter"]["build"]["args"]["EXTRAS"].split(",")
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert '".${EXTRAS:+[${EXTRAS}]}"' in dockerfile


def test_what_is_mounted_is_there() -> None:
    for service in SERVICES:
        for source in mounts(service).values():
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in COMPOSE["volumes"], source


def test_whoever_is_waited_for_says_when_it_is_ready() -> None:
    for name, service in SERVICES.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        for other, wait in service.get("depends_on", {}).items():
            assert wait == {"condition": "service_healthy"}
            assert other in SERVICES


def test_prometheus_asks_agents_and_exporter_and_has_the_alerts_of_the_chart() -> None:
    inside = mounts("prometheus")
    asked = read(inside["/etc/prometheus/prometheus.yml"])
    targets = [
        target
        for job in asked["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    ]
    metrics = make_parser().parse_args(SERVICES["exporter"]["command"][1:]).metrics_port
    assert targets == ["agent1:9094", "agent2:9094", f"exporter:{metrics.partition(':')[2]}"]
    (pattern,) = asked["rule_files"]
    rules = [Path(target) for target in inside if Path(target).match(pattern)]
    assert sorted(rule.name for rule in rules) == ["alerts.yaml", "exporter-alerts.yaml"]


def test_grafana_has_its_prometheus_and_the_dashboard() -> None:
    inside = mounts("grafana")
    (source,) = read(inside["/etc/grafana/provisioning/datasources/frazil.yaml"])["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"] is True, "the dashboard's variable takes the default"
    (found,) = read(inside["/etc/grafana/provisioning/dashboards/frazil.yaml"])["providers"]
    folder = DEPLOY / inside[found["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    board = json.loads((folder / Path(home).name).read_text())
    assert {one["type"] for one in board["templating"]["list"]} == {"datasource", "query"}


def test_no_secret_looks_like_one() -> None:
    texts = [(DEPLOY / "compose.yaml").read_text(), export_file().read_text()]
    named = re.findall(
        r"(?im)^\W*[\w.\-\"]*(?:password|secret|token|access.key)[\w.\-\"]*\s*[:=]\s*(\S+)$",
        "\n".join(texts),
    )
    assert len(named) >= 10
    assert all(one.strip('"').startswith(MADE_UP) for one in named), named
