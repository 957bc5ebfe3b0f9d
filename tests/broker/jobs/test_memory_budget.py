"""How much memory the worker may take: by the setting, and by the limits that this process is found to have."""

from pathlib import Path

from broker.jobs.memory_budget import AgentMemory, budget_of
from broker.jobs.worker.budget import (
    LOOK_S_MAX,
    LOOK_S_MIN,
    NEAR_BYTES,
    Budget,
    Limit,
    MiB,
    look_s,
)
from broker.jobs.worker.memory_limits import memory_limits

GiB = 1024 * MiB
AGENT = AgentMemory(resident=300 * MiB, bound=2100 * MiB)
NO_LIMIT_OF_V1 = "9223372036854771712\n"


def test_what_the_setting_says_is_the_budget_whatever_the_limits_are() -> None:
    limit = Limit(GiB, 900 * MiB, "a limit")
    assert budget_of(5 * GiB, [limit], AGENT) == Budget(5 * GiB, "by jobs.memory.bytes")


def test_where_no_limit_is_known_there_is_no_budget() -> None:
    assert budget_of(0, [], AGENT) is None


def test_a_limit_leaves_what_the_agent_cannot_come_to_by_its_bounds() -> None:
    limit = Limit(8 * GiB, 300 * MiB, "the cgroup's limit of 8192 MiB")
    found = budget_of(0, [limit], AGENT)
    assert found == Budget(8 * GiB - 2100 * MiB, "what the cgroup's limit of 8192 MiB leaves")


def test_a_limit_below_the_agents_bounds_leaves_three_quarters_of_what_nobody_has() -> None:
    found = budget_of(0, [Limit(GiB, 300 * MiB, "it")], AGENT)
    assert found is not None
    assert found.bytes == 543 * MiB


def test_what_other_agents_of_the_limit_have_is_left_to_them() -> None:
    alone, with_another = (
        budget_of(0, [Limit(16 * GiB, used, "it")], AGENT._replace(bound=GiB))
        for used in (300 * MiB, 1300 * MiB)
    )
    assert alone is not None
    assert with_another is not None
    assert alone.bytes - with_another.bytes == 1000 * MiB


def test_the_limit_that_leaves_least_counts_and_no_limit_leaves_less_than_nothing() -> None:
    limits = [Limit(8 * GiB, GiB, "wide"), Limit(GiB, 2 * GiB, "exceeded")]
    assert budget_of(0, limits, AGENT) == Budget(0, "what exceeded leaves")


def test_the_less_is_left_the_sooner_is_looked_again() -> None:
    assert look_s(100 * GiB) == LOOK_S_MAX
    assert look_s(NEAR_BYTES) < look_s(500 * MiB) < LOOK_S_MAX
    assert look_s(0) == LOOK_S_MIN


def write(folder: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def limits_in(folder: Path) -> list[Limit]:
    return memory_limits(proc=folder / "proc", groups=folder / "groups")


def test_a_containers_limit_is_that_of_the_uppermost_group_that_it_is_shown(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "groups/memory.max": "1073741824\n",
            "groups/memory.stat": "anon 1000\nfile 999999\nshmem 24\n",
        },
    )
    assert limits_in(tmp_path) == [Limit(GiB, 1024, "the cgroup's limit of 1024 MiB")]


def test_groups_above_limit_a_process_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/frazil.service\n",
            "groups/system.slice/frazil.service/memory.max": "max\n",
            "groups/system.slice/memory.max": "2147483648\n",
            "groups/system.slice/memory.stat": "anon 7\n",
        },
    )
    assert limits_in(tmp_path) == [Limit(2 * GiB, 7, "the cgroup's limit of 2048 MiB")]


def test_version_1_has_the_limit_in_a_tree_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "11:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n",
            "groups/memory/memory.limit_in_bytes": NO_LIMIT_OF_V1,
            "groups/memory/a/memory.limit_in_bytes": NO_LIMIT_OF_V1,
            "groups/memory/a/b/memory.limit_in_bytes": "536870912\n",
            "groups/memory/a/b/memory.stat": "rss 5\ntotal_rss 50\ntotal_cache 900\n",
        },
    )
    assert limits_in(tmp_path) == [Limit(512 * MiB, 50, "the cgroup's limit of 512 MiB")]


def test_a_container_of_version_1_is_not_shown_the_path_by_which_its_host_calls_it(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/0123abcd\n",
            "groups/memory/memory.limit_in_bytes": "536870912\n",
        },
    )
    assert [limit.bytes for limit in limits_in(tmp_path)] == [512 * MiB]


def test_without_a_group_that_limits_it_is_the_machines_memory(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice\n",
            "proc/meminfo": "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  600 kB\nHugePages_Total: 0\n",
            "groups/user.slice/memory.max": "max\n",
        },
    )
    assert limits_in(tmp_path) == [Limit(1000 << 10, 400 << 10, "the machine's memory")]


def test_where_the_system_says_nothing_nothing_limits(tmp_path: Path) -> None:
    assert limits_in(tmp_path) == []
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/../above\nnonsense\n", "proc/meminfo": "MemTotal: x kB\n"},
    )
    assert limits_in(tmp_path) == []
