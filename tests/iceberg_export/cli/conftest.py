"""Commands of the exporter over a small cluster, in this process."""

import pytest

from iceberg_export.cli import main
from iceberg_export.runs import session
from iceberg_export.tasks import spark
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.tasks import HereRunner
from tests.iceberg_export.kit.world import World, some_records


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 1)
    found.commit("orders", {0: [some_records(5)]})
    return found


@pytest.fixture
def frazil(world, tmp_path, monkeypatch, capsys):
    """Runs `frazil export …` here; (exit code, what it printed, what it said on stderr)."""
    monkeypatch.setattr(spark, "start", lambda _given, _progress: HereRunner())
    opened = []
    real = session.open_catalog
    monkeypatch.setattr(session, "open_catalog", lambda *a: opened.append(real(*a)) or opened[-1])
    monkeypatch.setattr("iceberg_export.plan.agent_client.PAUSE_S", 0)

    with served(world) as address:

        def run(*arguments, agent=address, data="data"):
            common = ["--agent", agent, "--data", str(tmp_path / data)]
            code = main.main([*arguments, *common])
            said = capsys.readouterr()
            return code, said.out, said.err

        yield run
    for catalog in opened:
        if hasattr(catalog, "engine"):
            catalog.engine.dispose()
