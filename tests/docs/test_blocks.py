"""Every block of code on every page is checked by what it is for; a language or a file that nobody knows is a mistake.

The tutorial's blocks are run (`test_tutorial`), and so are those about security (tests/clients/test_secure_page.py) and
about MirrorMaker (`test_migrate`). All blocks, those too, are held here against what reads them: commands against the
parsers of the commands, settings and configs against their tables, Python and SQL against their grammars.
"""

import importlib.util
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException, Producer

# Of PyIceberg's parts; PyYAML is none.
from strictyaml.ruamel.main import YAML

from broker.config import kafka_settings, properties_text
from broker.config.settings import TABLE, load
from broker.config.topic_configs import TABLE_OF_TOPICS
from broker.config.values import SettingsError
from broker.reports import project_file
from iceberg_export import settings as export_settings
from tests.docs import programs, references, shell
from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.docs.programs import WrongError

ALL = [block for page in PAGES for block in blocks(page)]
AGENT: Final = {row.name for row in TABLE.values()}
TRINO: Final = re.compile(r"connector\.name|iceberg\.[a-z.-]+|fs\.[a-z0-9.-]+")
ELSEWHERE: Final = {"mirror.properties": "tests/docs/test_migrate.py"}
"""Files of other programs, and the test that gives them to these."""
NEEDED: Final = {"cluster.id": "prod", "store": "s3://bucket/prefix", "log": "etcd://etcd1:2379"}
"""What every agent has to be told, and no page says again."""
DRAWN: Final = re.compile(r"─▶|│")


def _sh(block: Block) -> None:
    _script(block.text)


def _script(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError(done.stderr)
    script = shell.read(text)
    if not script.commands:
        raise WrongError("nothing is run")
    for command in script.commands:
        programs.run(command)
    for name, body in script.files.items():
        _file(name, body)


def _file(name: str, text: str) -> None:
    """What a block writes into a file, by the name of that."""
    suffix = Path(name).suffix
    if suffix == ".py":
        _python_text(text)
    elif suffix == ".toml":
        _project(text)
    elif suffix == ".properties":
        for key, value in properties_text.parse(name, text):
            _setting(key, value)
    else:
        raise WrongError(f"nobody knows what {name} is")


def _setting(name: str, value: str) -> None:
    """Of a topic, of an agent, of the exporter or of a client."""
    if name in TABLE_OF_TOPICS:
        programs.config(name, value)
    elif not (
        name in AGENT
        or kafka_settings.is_known(name)
        or name in export_settings.TABLE
        or name.startswith(("catalog.", "spark."))
        or name in {"security.protocol", "sasl.mechanism", "sasl.jaas.config"}
    ):
        raise WrongError(f"{name} is no setting")


def _properties(block: Block) -> None:
    pairs = properties_text.parse(str(block), block.text)
    if Path(block.title).name == "lake.properties":
        strange = [name for name, _ in pairs if not TRINO.fullmatch(name)]
        if strange:
            raise WrongError(f"Trino has no {strange}")
    elif block.title in ELSEWHERE:
        assert (ROOT / ELSEWHERE[block.title]).exists()
    elif block.title:
        raise WrongError(f"nobody knows what {block.title} is")
    else:
        for name, value in pairs:
            _setting(name, value)


def _ini(block: Block) -> None:
    """Settings of librdkafka, which knows its names."""
    for name, value in properties_text.parse(str(block), block.text):
        try:
            Producer({name: value})
        except KafkaException as error:
            if "No such configuration property" in str(error):
                raise WrongError(str(error)) from error


def _toml(block: Block) -> None:
    if block.title == "frazil.toml":
        try:
            load(defaults=NEEDED, toml=("frazil.toml", block.text), environ={}, flags=())
        except SettingsError as error:
            raise WrongError(str(error)) from error
    else:
        _project(block.text)


def _project(text: str) -> None:
    """Tables of topics, in one file."""
    try:
        told = project_file.parse(text)
    except ValueError as error:
        raise WrongError(str(error)) from error
    for settings in told.values():
        for name, value in settings.items():
            programs.config(name, value)


def _yaml(block: Block) -> None:
    """Values of the chart: their names are those of its own file, and agents know the settings."""
    yaml = YAML(typ="safe", pure=True)
    chart = yaml.load((ROOT / "deploy" / "helm" / "frazil" / "values.yaml").read_text())
    told = yaml.load(block.text)
    strange = told.keys() - chart.keys() | told.get("settings", {}).keys() - AGENT
    strange |= {
        f"{name}.{inner}"
        for name, value in told.items()
        if isinstance(value, dict) and name != "settings"
        for inner in value.keys() - (chart.get(name) or {}).keys()
    }
    if block.title != "values.yaml" or strange:
        raise WrongError(f"the chart has no {strange or block.title}")


def _python(block: Block) -> None:
    _python_text(block.text)


def _python_text(text: str) -> None:
    compile(text, "<page>", "exec")
    for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE):
        if importlib.util.find_spec(name) is None:
            raise WrongError(f"there is no package {name}")


def _json(block: Block) -> None:
    json.loads(block.text)


def _json_lines(block: Block) -> None:
    for line in block.text.splitlines():
        json.loads(line)


def _sql(block: Block) -> None:
    programs.sql(block.text)


def _text(block: Block) -> None:
    """What a command prints is on the page whose blocks are run; a picture stands by itself."""
    if block.page.name != "tutorial.md" and not DRAWN.search(block.text):
        raise WrongError("nobody compares this text with anything")


LANGUAGES: Final[dict[str, Callable[[Block], None]]] = {
    "sh": _sh,
    "properties": _properties,
    "ini": _ini,
    "toml": _toml,
    "yaml": _yaml,
    "python": _python,
    "json": _json,
    "jsonl": _json_lines,
    "sql": _sql,
    "text": _text,
}


def check(block: Block) -> None:
    if block.language not in LANGUAGES:
        raise WrongError(
            f"nobody knows how to check {block.language or 'a block without language'}"
        )
    LANGUAGES[block.language](block)


@pytest.mark.parametrize("block", ALL, ids=str)
def test_a_block_of_code_is_as_its_reader_takes_it(block: Block) -> None:
    check(block)


def test_no_page_has_code_that_is_only_indented() -> None:
    """Nobody could say what it is."""
    fence = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
    indented = re.compile(r"\n\n(?: {4}|\t)(?![ *`-]|\d+\. )")
    assert not [page for page in PAGES if indented.search(fence.sub("", page.read_text()))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_names_are_there(page: Path) -> None:
    """Whatever stands behind them: what is named is often a part of what is typed."""
    headings = re.findall(r"^## (frazil .*)$", references.commands(), re.MULTILINE)
    there = {tuple(words.split()) for words in headings}
    named = {
        tuple(words.split())
        for words in re.findall(r"`(frazil [a-z]+(?: [a-z][a-z-]*)?)", page.read_text())
    }
    strange = {
        words
        for words in named
        if not any(one[: len(words)] == words or words[: len(one)] == one for one in there)
    }
    assert strange == set()


@pytest.mark.parametrize(
    ("language", "title", "text"),
    [
        ("", "", "frazil dev\n"),
        ("mermaid", "", "graph LR\n"),
        ("sh", "", "frazil topic paint orders\n"),
        ("sh", "", "frazil dev --colour red\n"),
        ("sh", "", "frazil export run --twice\n"),
        ("sh", "", "ls | .venv/bin/frazil produce\n"),
        ("sh", "", "frazil dev 'without an end\n"),
        ("sh", "", "sudo frazil dev\n"),
        ("sh", "", "make tea\n"),
        ("sh", "", "helm install frazil deploy/chart\n"),
        ("sh", "", "cat > a.py <<'END'\nimport nothing_of_that_name\nEND\n"),
        ("sh", "", "kafka-configs.sh --alter --entity-type topics --add-config retention.ns=1\n"),
        ("sh", "", "kafka-configs.sh --alter --entity-type groups --add-config retention.ms=1\n"),
        ("sh", "", "duckdb -c 'SELEKT 1'\n"),
        ("sh", "", "docker compose exec exporter frazil export paint\n"),
        ("properties", "", "frazil.iceberg.value.mode=xml\n"),
        ("properties", "", "no.such.setting=1\n"),
        ("properties", "strange.properties", "listeners=PLAINTEXT://:9092\n"),
        ("ini", "", "sasl.user=app\n"),
        ("toml", "frazil.toml", "puts.per.secund = 4\n"),
        ("toml", "", '[topics.orders]\nvalue.mode = "xml"\n'),
        ("yaml", "values.yaml", "replica: 3\n"),
        ("yaml", "values.yaml", "settings: {cluster.ident: 3}\n"),
        ("python", "", "def (:\n"),
        ("json", "", "{\n"),
        ("jsonl", "", "{}\n{\n"),
        ("sql", "", "SELEKT 1\n"),
        ("text", "", "hello\n"),
    ],
)
def test_a_block_that_its_reader_would_refuse_is_found(
    language: str, title: str, text: str
) -> None:
    with pytest.raises((WrongError, ValueError, SyntaxError)):
        check(Block(ROOT / "docs" / "page.md", 1, language, title, text))
