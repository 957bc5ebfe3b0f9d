"""What tests draw is fixed; what `make explore` draws is fresh, and fixed by its seed."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.explore import Exploration, Told
from tests.properties import TIMES

ROOT = Path(__file__).parent.parent
PLANTED = "tests/planted.py"
FRESH = re.compile(
    r"random\.(SystemRandom|seed|random|choices?|randint|randrange|randbytes|shuffle|sample|uniform)"
    r"|random\.Random\(\)|(numpy|np)\.random\.(?!default_rng)\w+|(\w+\.)*default_rng\(\)"
    r"|(uuid\.)?uuid[14]|os\.urandom|secrets\.\w+|.*\.example\(\)|(derandomize|database)=.*"
)
MAY_BE = re.compile(r"random|default_rng|uuid|secrets|example\(\)|derandomize|database")
"""Without one of these words a file need not be looked at."""
MAY_BE_FRESH = {
    # Benchmarks, which `make test` does not run: their bytes must not compress.
    ("tests/bench/bench_fresh.py", "os.urandom"),
    ("tests/bench/bench_rights.py", "random.randbytes"),
    ("tests/bench/bench_rights.py", "random.uniform"),
    ("tests/bench/bench_start.py", "random.Random()"),
    ("tests/bench/load.py", "os.urandom"),
    ("tests/bench/rdkafka.py", "os.urandom"),
    # The seeds of those that look for more.
    ("tests/explore.py", "random.SystemRandom"),
    ("tests/fuzz/__main__.py", "random.SystemRandom"),
    ("tests/iceberg_export/kills.py", "random.randrange"),
    ("tests/sim/__main__.py", "random.SystemRandom"),
    ("tests/faults/drawn/__main__.py", "random.SystemRandom"),
    # Names, nonces and secrets, of which only their being new matters.
    ("tests/clients/test_secrets.py", "secrets.token_hex"),
    ("tests/parts/secured.py", "os.urandom"),
    ("tests/parts/secured.py", "secrets.token_hex"),
    ("tests/iceberg_export/kit/strangers.py", "uuid.uuid4"),
    ("tests/parts/left.py", "uuid.uuid4"),
    # Here it is decided.
    ("tests/properties.py", "derandomize=True"),
    ("tests/properties.py", "derandomize=False"),
    ("tests/properties.py", "database=None"),
}


def fresh_draws(source: str) -> set[str]:
    found = set()
    if not MAY_BE.search(source):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in {
            "random",
            "secrets",
            "numpy.random",
        }:
            found.add(ast.unparse(node))
        if isinstance(node, ast.Attribute | ast.Call | ast.keyword | ast.Name) and FRESH.fullmatch(
            text := ast.unparse(node)
        ):
            found.add(text)
    return found


def test_no_test_draws_what_it_could_not_draw_again():
    files = sorted(ROOT.glob("tests/**/*.py"))
    found = {
        (str(file.relative_to(ROOT)), each)
        for file in files
        for each in fresh_draws(file.read_text())
    }
    assert found == MAY_BE_FRESH


@pytest.mark.parametrize(
    "source",
    [
        "random.SystemRandom().randrange(9)",
        "random.seed()",
        "random.choice([1])",
        "random.Random()",
        "from random import choice",
        "np.random.permutation(3)",
        "np.random.default_rng()",
        "uuid.uuid4()",
        "os.urandom(3)",
        "st.integers().example()",
        "settings(derandomize=False)",
    ],
)
def test_a_draw_that_is_fresh_is_seen(source: str):
    assert fresh_draws(source)


def pytest_drew(*arguments: str, hash_seed: int = 0) -> list[str]:
    """What the planted tests drew in a process of its own."""
    command = ["-m", "pytest", "-s", "-k", "not fails", *arguments, PLANTED]
    run = python(*command, variables={"PYTHONHASHSEED": str(hash_seed)})
    assert run.returncode == 0, run.stdout + run.stderr
    return re.findall(r"drawn .*", run.stdout)


def test_a_test_draws_the_same_in_every_run_whatever_is_loaded_beside_it():
    drawn = pytest_drew()
    assert len(drawn) >= 20
    assert pytest_drew("-p", "broker.agent", hash_seed=1) == drawn


def test_exploring_draws_more_and_afresh_and_by_its_seed_again():
    drawn = pytest_drew("--explore", "1")
    assert len(drawn) >= TIMES * 20
    assert pytest_drew("--explore", "1", "-p", "broker.agent") == drawn
    assert not set(drawn[-TIMES * 3 :]) & set(pytest_drew("--explore", "2"))


def python(*arguments: str, variables: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def example(told: str) -> list[str]:
    # In CI pytest tells it a second time, in its summary.
    found = re.search(r"Failing test case:[^)]*\)", told)
    assert found is not None, told
    return [word for word in found[0].split() if word != "E"]


def test_the_command_that_a_finding_is_told_with_replays_it():
    explored = python("-m", "tests.explore", "--minutes", "9", "--first", PLANTED, variables={})
    assert explored.returncode == 1, explored.stdout + explored.stderr
    (command,) = re.findall(r"replay: (.*)", explored.stdout)
    hashes, _python, *arguments = shlex.split(command)
    replayed = python(*arguments, variables=dict([hashes.split("=")]))
    assert replayed.returncode == 1
    assert example(replayed.stdout) == example(explored.stdout)


def test_a_finding_that_recurs_is_told_once_and_counted(capsys):
    exploration = Exploration(until=0, only=[])
    for seed in (1, 2):
        exploration.hear(Told(0, "what", f"--seed {seed}", "family", 1, "failure", "sign"))
    assert capsys.readouterr().out.count("FOUND") == 1
    assert exploration.found == {"sign": 2}
    assert exploration.inputs == {"family": 2}


def test_the_inputs_of_a_round_are_counted_as_they_were_run():
    program = (
        "import math, queue, sys; from tests.explore import run_tests\n"
        "told = queue.SimpleQueue()\n"
        f"run_tests(0, told, math.inf, ['{PLANTED}::test_draws', '{PLANTED}::test_takes_a_seed'])\n"
        "while not told.empty():\n"
        "    print(told.get().inputs, file=sys.stderr)\n"
    )
    told = python("-c", program, variables={"PYTHONHASHSEED": "7"}).stderr
    assert max(map(int, told.split())) == TIMES * 20
    assert sum(map(int, told.split())) == TIMES * 20 + TIMES * 3
