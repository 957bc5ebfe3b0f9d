"""The chart with the values of docs/howto/kubernetes.md: agents understand what they are given."""

import subprocess
from pathlib import Path

import pytest

# Of PyIceberg's parts; PyYAML is none.
from strictyaml.ruamel.main import YAML

from broker.config.settings import load
from tests.docs.blocks import ROOT, blocks
from tests.parts import install

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "howto" / "kubernetes.md"


def test_the_pages_values_are_rendered_into_settings_that_agents_take(tmp_path: Path) -> None:
    (values,) = (block.text for block in blocks(PAGE) if block.title == "values.yaml")
    file = tmp_path / "values.yaml"
    file.write_text(values)
    chart = ROOT / "deploy" / "helm" / "frazil"
    done = subprocess.run(
        [install.helm(), "template", "frazil", chart, "--values", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    objects = [each for each in YAML(typ="safe", pure=True).load_all(done.stdout) if each]
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    toml = found["ConfigMap", "frazil"]["data"]["frazil.toml"]
    loaded = load(defaults={}, toml=("frazil.toml", toml), environ={}, flags=())
    assert loaded.settings.store_url == "s3://my-bucket/frazil"
    assert loaded.settings.cluster_id == "prod"
    assert found["StatefulSet", "frazil"]["spec"]["replicas"] == 3
    assert {kind for kind, _ in found} >= {"NetworkPolicy", "PrometheusRule"}
