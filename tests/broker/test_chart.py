"""The chart as Helm renders it: what pods are given is what agents and the exporter understand."""

import functools
import re
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

# Of PyIceberg's parts; PyYAML is none.
from strictyaml.ruamel.main import YAML

from broker.config.settings import Settings, advertised, load
from broker.workers import seats
from iceberg_export import settings as export_settings
from tests.parts import install

pytestmark = pytest.mark.integration

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "frazil"
NAMESPACE = "shop"
STORE = ("settings.store=s3://bucket/prefix", "settings.log=etcd://etcd:2379/frazil")
EXPORTER = ("exporter.enabled=true", r"exporter.settings.catalog\.uri=http://catalog:8181")
TLS = (
    "admin.tls=true",
    "certificates.secretName=made",
    r"kafka.ssl\.keystore\.type=PEM",
    r"kafka.ssl\.keystore\.location=/etc/frazil-certificates/agent.pem",
)

Object = dict[str, Any]


def helm(*values: str) -> subprocess.CompletedProcess[str]:
    words = [word for each in values for word in ("--set", each)]
    return subprocess.run(
        [install.helm(), "template", "frazil", CHART, "--namespace", NAMESPACE, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@functools.cache
def rendered(*values: str) -> dict[tuple[str, str], Object]:
    """All objects, by kind and name."""
    done = helm(*STORE, *values)
    assert done.returncode == 0, done.stderr
    objects = [each for each in YAML(typ="safe", pure=True).load_all(done.stdout) if each]
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects)
    return found


def container(pod: Object) -> Object:
    (found,) = pod["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def files(pod: Object) -> dict[str, tuple[str, str]]:
    """Secret and key of each file that a pod has of secrets, by its path; "": all keys."""
    spec = pod["spec"]["template"]["spec"]
    mounted = {each["name"]: each["mountPath"] for each in container(pod)["volumeMounts"]}
    found = {}
    for volume in spec["volumes"]:
        secret = volume.get("secret")
        if secret is not None:
            for item in secret.get("items", [{"key": "", "path": ""}]):
                path = f"{mounted[volume['name']]}/{item['path']}"
                found[path] = (secret["secretName"], item["key"])
    return found


def agent_settings(*values: str) -> Settings:
    """As an agent of the StatefulSet loads them."""
    objects = rendered(*values)
    toml = objects["ConfigMap", "frazil"]["data"]["frazil.toml"]
    given = container(objects["StatefulSet", "frazil"])["env"]
    environ = {each["name"]: str(each["value"]) for each in given if "value" in each}
    told = {
        name: text.replace("$(POD_NAME)", "frazil-0")
        for name, text in environ.items()
        if name.startswith("FRAZIL_")
    }
    return load(defaults={}, toml=("frazil.toml", toml), environ=told, flags=()).settings


def export_toml(*values: str) -> dict[str, str]:
    text = rendered(*values, *EXPORTER)["Secret", "frazil-exporter"]["stringData"]["export.toml"]
    return {name: str(value) for name, value in tomllib.loads(text).items()}


@pytest.mark.parametrize(
    "values",
    [
        (),
        EXPORTER,
        (*EXPORTER, *TLS),
        (*EXPORTER, "networkPolicy.enabled=true", "serviceMonitor.enabled=true"),
        ("prometheusRule.enabled=true", *EXPORTER, r"exporter.settings.spark\.master=yarn"),
        (r"kafka.num\.partitions=7", r"settings.cache\.bytes=1048576000"),
    ],
    ids=lambda values: " ".join(each.partition("=")[0] for each in values) or "as it is",
)
def test_whatever_is_switched_on_agents_understand_what_they_are_given(
    values: Sequence[str],
) -> None:
    settings = agent_settings(*values)
    assert settings.node_name == "frazil-0"
    assert settings.advertise[0].host == "frazil-0.frazil-agents.shop.svc"
    assert settings.store_url == "s3://bucket/prefix"


def test_numbers_are_written_as_they_are() -> None:
    settings = agent_settings(r"kafka.num\.partitions=7", r"settings.cache\.bytes=1048576000")
    assert settings.kafka.num_partitions == 7
    assert settings.cache_bytes == 1_048_576_000


def test_kafkas_listeners_are_advertised_by_each_pods_name() -> None:
    listeners = r"kafka.listeners=SSL://0.0.0.0:9092\,SASL_SSL://0.0.0.0:9093"
    settings = agent_settings(listeners, *TLS, r"kafka.sasl\.enabled\.mechanisms=SCRAM-SHA-512")
    told = [(each.name, each.host, each.port) for each in settings.advertise]
    host = "frazil-0.frazil-agents.shop.svc"
    assert told == [("SSL", host, 9092), ("SASL_SSL", host, 9093)]


def test_the_exporter_has_its_own_token_and_not_the_operators() -> None:
    objects = rendered(*EXPORTER)
    tokens = objects["Secret", "frazil-admin"]["data"]
    assert sorted(tokens) == ["exporter", "token"]
    assert tokens["exporter"] != tokens["token"]
    exporter, agent = objects["Deployment", "frazil-exporter"], objects["StatefulSet", "frazil"]
    said = export_toml()["agent.token.file"]
    of_exporter = {path: key for path, key in files(exporter).items() if key[0] == "frazil-admin"}
    assert of_exporter == {said: ("frazil-admin", "exporter")}
    settings = agent_settings(*EXPORTER)
    assert files(agent)[str(settings.http_token_file)] == ("frazil-admin", "token")
    ((name, file),) = settings.http_tokens
    assert files(agent)[str(file)] == ("frazil-admin", "exporter")
    assert settings.http_roles_exporter == frozenset({f"User:{name}"})
    assert settings.http_roles_operator == frozenset()


def test_without_an_exporter_nobody_has_its_token() -> None:
    assert agent_settings().http_tokens == ()
    assert ("frazil-admin", "exporter") not in files(rendered()["StatefulSet", "frazil"]).values()


def test_users_and_exporters_of_the_settings_stay_beside_the_charts() -> None:
    settings = agent_settings(
        *EXPORTER,
        r"settings.http\.tokens=ann:/etc/ann",
        r"settings.http\.roles\.exporter=User:ann",
    )
    assert [name for name, _ in settings.http_tokens] == ["ann", "exporter"]
    assert settings.http_roles_exporter == frozenset({"User:ann", "User:exporter"})


def test_a_secret_of_ones_own_is_used_and_none_is_made() -> None:
    objects = rendered(*EXPORTER, "admin.tokenSecret=mine")
    assert ("Secret", "frazil-admin") not in objects
    assert {secret for secret, key in files(objects["StatefulSet", "frazil"]).values()} == {"mine"}
    exporter = files(objects["Deployment", "frazil-exporter"])
    assert ("mine", "exporter") in exporter.values()
    assert ("mine", "token") not in exporter.values()


@pytest.mark.parametrize("values", [(), TLS], ids=["http", "https"])
def test_the_exporter_asks_the_admin_service_and_understands_its_settings(
    values: Sequence[str], tmp_path: Path
) -> None:
    given = export_toml(*values)
    scheme = "https" if values else "http"
    assert given["agent"] == f"{scheme}://frazil-admin.shop.svc:9094"
    assert given["store.url"] == "s3://bucket/prefix"
    file = tmp_path / "export.toml"
    objects = rendered(*values, *EXPORTER, "serviceMonitor.enabled=true")
    (endpoint,) = objects["ServiceMonitor", "frazil"]["spec"]["endpoints"]
    assert endpoint["scheme"] == scheme
    file.write_text(objects["Secret", "frazil-exporter"]["stringData"]["export.toml"])
    export_settings.parse(data=tmp_path, config=file, assignments=())
    agent = agent_settings(*values, *EXPORTER).http
    assert agent is not None
    assert (agent.port, agent.secure) == (9094, bool(values))
    probe = container(objects["StatefulSet", "frazil"])["readinessProbe"]["httpGet"]
    assert probe["scheme"] == scheme.upper()
    if values:
        assert files(objects["Deployment", "frazil-exporter"])[given["agent.ca"]] == (
            "made",
            "ca.crt",
        )
        assert ("made", "") not in files(objects["Deployment", "frazil-exporter"]).values()


def test_services_lead_to_agents_alone_and_the_admin_port_is_nobody_elses() -> None:
    objects = rendered(*EXPORTER, "service.type=LoadBalancer")
    labels = objects["StatefulSet", "frazil"]["spec"]["template"]["metadata"]["labels"]
    others = objects["Deployment", "frazil-exporter"]["spec"]["template"]["metadata"]["labels"]
    for name in ("frazil", "frazil-admin", "frazil-agents"):
        spec = objects["Service", name]["spec"]
        assert spec["selector"].items() <= labels.items()
        assert not spec["selector"].items() <= others.items()
        ports = [port["name"] for port in spec["ports"]]
        assert ports == (["http"] if name == "frazil-admin" else ["kafka"])
    assert objects["Service", "frazil-admin"]["spec"]["type"] == "ClusterIP"


@pytest.mark.parametrize("pod", [("StatefulSet", "frazil"), ("Deployment", "frazil-exporter")])
def test_pods_run_with_as_few_rights_as_they_need(pod: tuple[str, str]) -> None:
    found = rendered(*EXPORTER)[pod]
    spec = found["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    context = container(found)["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False


def test_a_network_policy_lets_the_exporter_alone_to_the_http_port() -> None:
    objects = rendered(*EXPORTER, "networkPolicy.enabled=true")
    rules = objects["NetworkPolicy", "frazil"]["spec"]["ingress"]
    (http,) = [rule for rule in rules if rule["ports"] == [{"port": "http"}]]
    (peer,) = http["from"]
    labels = objects["Deployment", "frazil-exporter"]["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


MISTAKES = {
    "no store": ((), "settings.store and settings.log"),
    "no catalog": ((*STORE, "exporter.enabled=true"), "catalog\\.uri must be set"),
    "TLS without whom to trust": ((*STORE, *EXPORTER, "admin.tls=true"), "certificates.secretName"),
    "a master that anybody can take part in": (
        (*STORE, *EXPORTER, r"exporter.settings.spark\.master=spark://m:7077"),
        "spark\\.authenticate",
    ),
    "no image for executors": (
        (*STORE, *EXPORTER, r"exporter.settings.spark\.master=k8s://https://k"),
        "container\\.image must be set",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_what_cannot_work_is_told_when_it_is_rendered(kind: str) -> None:
    values, sentence = MISTAKES[kind]
    done = helm(*values)
    assert done.returncode != 0
    assert re.sub(r"\\+", "", sentence) in re.sub(r"\\+", "", done.stderr)


@pytest.mark.parametrize(
    "values",
    [(), TLS, ("kafka.listeners=SSL://0.0.0.0:9092", *TLS)],
    ids=["plain", "tls", "listeners"],
)
def test_each_worker_of_a_pod_is_reached_where_clients_are_told_to(values: Sequence[str]) -> None:
    given = ("workers=2", "networkPolicy.enabled=true", *values)
    settings = agent_settings(*given)
    assert settings.workers == 2
    assert seats.contradictions(settings, 2) == []
    bound = {each.name: each.port or 0 for each in settings.listen}
    places = [seats.Seat(number, 2, settings.node_name, bound, (9094,), ()) for number in (1, 2)]
    told = {
        listener.port
        for seat in places
        for listener in advertised(
            seats.settings_of(settings, seat),
            ports=seats.own_ports(settings, seat.number),
            host_name="pod",
        )
    }
    assert told == {9192, 9292}
    objects = rendered(*given)
    opened = {
        each["name"]: each["containerPort"]
        for each in container(objects["StatefulSet", "frazil"])["ports"]
    }
    assert opened == {"kafka": 9092, "kafka-w1": 9192, "kafka-w2": 9292, "http": 9094}
    named = {each["port"] for each in objects["Service", "frazil-agents"]["spec"]["ports"]}
    assert named == {9092, 9192, 9292}
    let_in = objects["NetworkPolicy", "frazil"]["spec"]["ingress"][0]["ports"]
    assert [each["port"] for each in let_in] == ["kafka", "kafka-w1", "kafka-w2"]


def test_one_worker_has_no_ports_besides() -> None:
    objects = rendered()
    assert "workers" not in objects["ConfigMap", "frazil"]["data"]["frazil.toml"]
    ports = container(objects["StatefulSet", "frazil"])["ports"]
    assert [each["name"] for each in ports] == ["kafka", "http"]


@pytest.mark.parametrize("value", ["workers=auto", "settings.workers=2", "workers=0"])
def test_a_number_of_workers_that_nobody_could_open_ports_for_is_refused(value: str) -> None:
    done = helm(*STORE, value)
    assert done.returncode != 0
    assert "workers is a value of the chart's own" in done.stderr
