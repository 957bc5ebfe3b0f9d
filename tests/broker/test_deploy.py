"""What is deployed agrees with what is built: metrics, settings, packages. Rendered: `test_chart`."""

import json
import re
from pathlib import Path

import pytest

from broker.admin import metrics
from broker.admin.memory_bound import ROW_BYTES, memory_bound
from broker.cli import dev, main
from broker.config.settings import BY_NAME, load
from broker.config.value_types import token
from broker.workers import joined_metrics
from iceberg_export.runs import metrics as loop_metrics
from iceberg_export.settings import DEFAULTS, PREFIXES

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
CHART = DEPLOY / "helm" / "frazil"
WORKER_BYTES = 512 << 20
"""Its code, and what the jobs have in hand; the rows it holds come on top."""
DASHBOARD = DEPLOY / "grafana" / "frazil-agents.json"


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bfrazil_[a-z0-9_]+", text))


def test_the_dashboard_uses_metrics_that_exist() -> None:
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            used = metrics_in(target["expr"])
            assert used <= set(metrics.NAMES), f"{panel['title']}: {used - set(metrics.NAMES)}"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("alerts.yaml", (*metrics.NAMES, *joined_metrics.NAMES)),
        ("exporter-alerts.yaml", loop_metrics.NAMES),
    ],
    ids=["agents", "exporter"],
)
def test_alerts_use_metrics_that_exist_and_each_has_a_summary(file: str, names) -> None:
    text = (CHART / file).read_text()
    used = metrics_in(" ".join(re.findall(r"expr: (.*)", text)))
    assert used
    assert used <= set(names), used - set(names)
    assert text.count("alert:") == text.count("summary:") == text.count("severity:")


def test_the_exporters_settings_named_by_the_chart_exist_and_its_arguments_are_understood() -> None:
    values = (CHART / "values.yaml").read_text().partition("\nexporter:\n")[2]
    block = values.partition("  settings:\n")[2].partition("  # ")[0]
    named = re.findall(r"^    ([a-z.]+):", block, re.MULTILINE)
    assert "catalog.uri" in named
    assert all(name in DEFAULTS or name.startswith(PREFIXES) for name in named)
    pod = (CHART / "templates" / "exporter.yaml").read_text()
    said = (DEPLOY.parent / "iceberg_export" / "cli" / "parser.py").read_text()
    options = re.findall(r"- (--[a-z-]+)$", pod, re.MULTILINE)
    assert options
    assert all(f'"{option}"' in said for option in options)


def test_the_exporter_of_the_chart_has_no_more_than_it_needs() -> None:
    pod = (CHART / "templates" / "exporter.yaml").read_text()
    before, role = pod.split("kind: Role\n")
    assert before.rpartition("{{- if ")[2].startswith("$kubernetes }}"), "only k8s:// starts pods"
    assert "{{- end }}" not in role.partition("kind: RoleBinding")[0]
    assert "automountServiceAccountToken: {{ $kubernetes }}" in pod
    assert "0.0.0.0" not in pod.replace("0.0.0.0:{{ .Values.exporter.metricsPort }}", "")
    assert "- spark.driver.bindAddress=$(POD_IP)" in pod
    # Its agents may be asked over plain HTTP, and so are not believed where the store is.
    assert 'dict "store.url" .Values.settings.store' in pod
    assert 'set $store "store.endpoint"' in pod
    assert "kind: ConfigMap" not in pod, "settings of catalogs are secrets"


def test_settings_named_by_the_chart_exist() -> None:
    values = (CHART / "values.yaml").read_text()
    block = values.partition("settings:\n")[2].partition("\n#")[0]
    named = re.findall(r"^  ([a-z.]+):", block, re.MULTILINE)
    assert {"store", "log"} <= set(named) <= set(BY_NAME)


def test_probes_ask_the_endpoints_of_the_agent() -> None:
    pod = (CHART / "templates" / "statefulset.yaml").read_text()
    assert pod.index("livenessProbe") < pod.index("/health/live") < pod.index("readinessProbe")
    assert pod.index("readinessProbe") < pod.index("/health/ready")
    assert "enableServiceLinks: false" in pod


def test_load_does_not_kill_a_pod_nor_take_it_out_of_the_service() -> None:
    """Overload is in the answers' bodies. Probes wait long for an answer beside thousands of clients."""
    pod = (CHART / "templates" / "statefulset.yaml").read_text()
    assert re.findall(r"timeoutSeconds: (\d+)", pod) == ["5", "3"]
    assert re.findall(r"failureThreshold: (\d+)", pod) == ["6", "2"]


def test_the_memory_of_a_pod_has_room_for_the_agents_bound_and_the_worker() -> None:
    values = (CHART / "values.yaml").read_text()
    limit = re.search(r"^  limits: \{memory: (\d+)Gi\}", values, re.MULTILINE)
    assert limit is not None
    required = {"store": "s3://bucket/prefix", "log": "etcd://etcd:2379/frazil"}
    settings = load(defaults=required, toml=None, environ={}, flags=()).settings
    bound = memory_bound(settings, request_bytes_max=256 << 20)
    rows = 2 * ROW_BYTES * settings.spill_rows
    assert bound + rows + WORKER_BYTES <= int(limit[1]) << 30


def test_the_image_copies_every_package_of_the_distribution() -> None:
    pyproject = (DEPLOY.parent / "pyproject.toml").read_text()
    packages = re.search(r"^packages = \[(.*)\]", pyproject, re.MULTILINE)
    assert packages is not None
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for name in re.findall(r'"(\w+)"', packages[1]):
        assert f"COPY {name} {name}\n" in dockerfile


def template(name: str) -> str:
    return (CHART / "templates" / name).read_text()


def test_tokens_are_made_once_and_long_enough() -> None:
    made = template("admin.yaml")
    assert made.index('lookup "v1" "Secret"') < made.index("randAlphaNum 48 | b64enc")
    assert token("a" * 48) == "a" * 48


def test_the_images_base_can_be_given_by_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert bases == ["${BASE}", "${BASE}"]


def test_the_image_alone_is_an_agent_with_everything_embedded_and_data_in_its_volume() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    said = {
        name: re.findall(rf"^{name} (.*)$", dockerfile, re.MULTILINE)[-1]
        for name in ("CMD", "ENTRYPOINT", "VOLUME", "WORKDIR", "EXPOSE")
    }
    assert json.loads(said["ENTRYPOINT"]) == ["frazil"]
    options = main._parser().parse_args(json.loads(said["CMD"]))
    assert (options.name, options.bind) == ("frazil dev", "0.0.0.0")
    assert not options.data.is_absolute()
    assert said["WORKDIR"] == said["VOLUME"] == "/data"
    assert {str(options.port), str(dev.REGISTRY_PORT), "9094"} == set(said["EXPOSE"].split())
