"""The house rules that a program can check: lengths, docstrings, no unfinished places."""

import ast
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "storage", "txn", "coordinator", "broker", "iceberg_export")
GENERATED = {"coordinator/log/etcd_pb2.py"}

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
FUNCTION_LINES_GOOD = 60
FUNCTIONS_OVER_GOOD_MAX = 12
"""Few functions over 60 lines; this number may only shrink."""


def _sources(*folders: str) -> dict[str, Path]:
    found = (file for folder in folders for file in sorted(ROOT.glob(f"{folder}/**/*.py")))
    return {name: file for file in found if (name := str(file.relative_to(ROOT))) not in GENERATED}


OURS = _sources(*PACKAGES)
ALL = _sources(*PACKAGES, "tests")


@cache
def _text(file: Path) -> str:
    return file.read_text()


@cache
def _docstring(file: Path) -> str:
    """Returns the text that a module opens with; "" if that is none.

    Only the first statement is read: to parse every file whole takes seconds.
    """
    with file.open() as source:
        tokens = tokenize.generate_tokens(source.readline)
        silent = (tokenize.COMMENT, tokenize.NL)
        first = next(token for token in tokens if token.type not in silent)
    return ast.literal_eval(first.string) if first.type == tokenize.STRING else ""


@cache
def _functions(file: Path) -> list[tuple[str, int]]:
    tree = ast.parse(_text(file))
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_are_at_most_600_lines() -> None:
    assert not [
        name for name, file in ALL.items() if len(_text(file).splitlines()) > FILE_LINES_MAX
    ]


def test_every_module_says_what_it_is() -> None:
    assert not [name for name, file in ALL.items() if not _docstring(file)]


def _functions_over(lines_max: int) -> list[str]:
    return [
        f"{name}:{function} ({lines})"
        for name, file in OURS.items()
        for function, lines in _functions(file)
        if lines > lines_max
    ]


def test_functions_are_at_most_80_lines() -> None:
    assert not _functions_over(FUNCTION_LINES_MAX)


def test_few_functions_are_over_60_lines() -> None:
    long = _functions_over(FUNCTION_LINES_GOOD)
    assert len(long) <= FUNCTIONS_OVER_GOOD_MAX, "\n".join(long)


def test_nothing_is_left_unfinished() -> None:
    words = "|".join(
        ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "raise NotImplemented" + "Error")
    )
    unfinished = re.compile(rf"\b(?:{words})\b")
    assert not [
        (name, *found) for name, file in ALL.items() if (found := unfinished.findall(_text(file)))
    ]


def test_every_handler_names_its_versions() -> None:
    handlers = {name: file for name, file in OURS.items() if "/handlers/" in name}
    assert not [
        name
        for name, file in handlers.items()
        if not name.endswith("__init__.py") and not re.search(r"v\d", _docstring(file))
    ]


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    pattern = re.compile(r"pytest\.(?:skip|mark\.(?:skip|xfail))|importor" + "skip")
    found = [name for name, file in _sources("tests").items() if pattern.search(_text(file))]
    assert not found


PRIVATE_NAMES_OF = {
    "iceberg_export/records/read_chunks.py": "botocore",
    "iceberg_export/table/pyiceberg_internals.py": "pyiceberg",
    "iceberg_export/tasks/spark.py": "pyspark",
    "iceberg_export/typed/reference.py": "fastavro",
}
"""The one place that uses the private names of a library, and says why."""
_OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def _private_names(tree: ast.Module) -> set[str]:
    """Returns the private names of others: attributes, names for getattr, imports.

    Those of a class's own instance are its own, unless the class is made from one of PyIceberg's.
    """
    strangers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg")
        for alias in node.names
    }
    inherited = {
        name
        for made in ast.walk(tree)
        if isinstance(made, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in strangers for base in made.bases)
        for name in _of_self(made, ast.Load) - _of_self(made, ast.Store) - _methods(made)
    }
    return {name for node in ast.walk(tree) for name in _of_others(node)} | inherited


def _of_self(made: ast.ClassDef, context: type[ast.expr_context]) -> set[str]:
    return {
        node.attr
        for node in ast.walk(made)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, context)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and re.match("_[^_]", node.attr)
    }


def _methods(made: ast.ClassDef) -> set[str]:
    return {node.name for node in ast.walk(made) if isinstance(node, ast.FunctionDef)}


def _of_others(node: ast.AST) -> list[str]:
    names: list[str] = []
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            pass
        case ast.Attribute(attr=name) if name not in _OF_TUPLES:
            names = [name]
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, name, *_]):
            names = [str(name.value)] if isinstance(name, ast.Constant) else []
        case ast.ImportFrom(module=str(module), names=imported):
            names = [part for each in imported for part in (*module.split("."), each.name)]
    return [name for name in names if re.match("_[^_]", name)]


@pytest.mark.parametrize(
    "name", sorted(name for name in OURS if name.startswith("iceberg_export/"))
)
def test_private_names_of_a_library_are_used_in_one_place(name: str) -> None:
    tree = ast.parse(OURS[name].read_text())
    if name not in PRIVATE_NAMES_OF:
        assert not _private_names(tree)
    elif PRIVATE_NAMES_OF[name] != "pyiceberg":
        assert _private_names(tree), "it uses none: take it out of the table"
        assert "pyiceberg" not in OURS[name].read_text()


@pytest.mark.parametrize(
    "text",
    [
        "transaction._updates",
        "self.table._metadata",
        "from pyiceberg.io.pyarrow import _read_deletes",
        "from pyiceberg._core import read",
        'getattr(catalog, "_session")',
        "from pyiceberg.io import FileIO\nclass Ours(FileIO):\n  def open(self): self._files",
    ],
)
def test_a_private_name_is_seen(text: str) -> None:
    assert _private_names(ast.parse(text))


RETIRED = {
    "Beat": "PendingHeartbeat",
    "Become": "ReplaceGroup",
    "Bounding": "JobApplier",
    "CoordinatorSettings": "LogClientSettings",
    "CoordinatorStats": "LogClientStats",
    "Gaps": "FailedBatches",
    "Hosted": "GroupContext",
    "Hosting": "CoordinatorRuntime",
    "KeyOffsets": "OffsetMap",
    "Kinds": "GroupFactory",
    "Library": "SchemaLibrary",
    "Look": "FetchPartitionStatus or SubscriptionMetadata",
    "Means": "what it is a means to",
    "Membership": "LifecycleManager",
    "Offered": "SubmittedSchema",
    "Parked": "DelayedFetch",
    "ParkedPolls": "FetchPurgatory",
    "Picture": "GroupImage",
    "Said": "CommandResult",
    "Sound": "ValidBatch",
    "Standing": "TransactionMetadata",
    "Transacting": "TransactionApplier",
    "TransactionService": "TransactionCoordinator",
    "Unsound": "InvalidBatch",
    "Wanted": "what is asked for: FeatureUpdate, RequestedOffset, SpanRead, TransactionFilter",
    "Wish": "AlterConfigOp",
    "all_know": "all_support",
    "bury": "refuse_waiting",
    "carry_out": "apply, or what is done",
    "condemn": "fail_group",
    "hosted": "context",
    "hosting": "runtime",
    "in_words": "error_text",
    "is_nothing": "is_deletable",
    "judge": "validate, or what is compared: check_sequence",
    "membership": "lifecycle",
    "picture": "image",
    "stand": "transition_to",
    "standing": "txn_metadata",
}
"""Names that have gone, and what is said instead: words of our own where Kafka or etcd has one (GLOSSARY.md)."""
MAY_BE_RETIRED = re.compile(rf"\b_*(?:(?:{'|'.join(RETIRED)})_*\b|judge_)")
"""Without such a word, in prose or as a name, a file need not be parsed."""

RETIRED_MODULES = {
    "bounding": "job_applier",
    "by_name": "job_table",
    "gaps": "failed_batches",
    "handling": "handler_support",
    "hosted": "group_context",
    "hosting": "coordinator_runtime",
    "opening": "environment",
    "parked": "purgatory",
    "picture": "image",
    "relay": "pipe_frames",
    "said": "command_result",
    "sealed": "job_objects",
    "transacting": "transaction_applier",
}


def _identifiers(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Name():
                found.add(node.id)
            case ast.Attribute():
                found.add(node.attr)
            case ast.arg() | ast.keyword():
                found.add(node.arg or "")
            case ast.alias():
                found.add(node.asname or node.name)
    return found


@pytest.mark.parametrize("name", sorted(ALL))
def test_retired_names_stay_away(name: str) -> None:
    text = _text(ALL[name])
    if not MAY_BE_RETIRED.search(text):
        return
    stripped = {identifier.strip("_") for identifier in _identifiers(text)}
    found = [f"{old} (now: {RETIRED[old]})" for old in sorted(stripped & RETIRED.keys())]
    found += [
        f"{word}_{rest} (now: validate_{rest})"
        for word, _, rest in (identifier.partition("_") for identifier in sorted(stripped))
        if word == "judge" and rest
    ]
    assert not found, f"{name} has names that were retired: {', '.join(found)}"


@pytest.mark.parametrize("name", sorted(OURS))
def test_retired_names_of_modules_stay_away(name: str) -> None:
    stem = Path(name).stem
    assert stem not in RETIRED_MODULES, f"{name} is called {RETIRED_MODULES[stem]} now"
