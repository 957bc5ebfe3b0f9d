"""What is on the pages of groups and transactions, of agents over one log."""

from broker.console.views import groups, topics, transactions
from broker.console.views.cluster import cluster_view
from broker.console.views.page_of_rows import Asked
from tests.broker.groups.members import classic_group, consumer_group, put
from tests.broker.groups.world import agents, group_of
from tests.broker.transactions.world import in_transaction
from tests.kit.batches import batch


async def test_every_agent_says_the_same_of_groups_whoever_coordinates_them() -> None:
    async with agents("one", "two") as (one, two):
        await classic_group(one, group_of(one), {"logs": [0, 1]}, {"logs": [2, 3]})
        await two.log_client.barrier()
        (row,) = groups.groups_view(one.machine, Asked()).rows
        assert (row.kind, row.members, row.coordinator) == ("classic", 2, "one")
        group = one.machine.groups.get(row.group_id)
        view = groups.group_view(one.machine, group, 1)
        assert view.protocol == "consumer"
        assert sorted(member.assigned for member in view.members) == [
            (("logs", (0, 1)),),
            (("logs", (2, 3)),),
        ]
        assert groups.group_view(two.machine, two.machine.groups.get(row.group_id), 1) == view


async def test_lag_is_counted_to_the_end_of_the_log_and_says_whose_it_is() -> None:
    async with agents() as (one,):
        await one.produce("logs", batch(b"a", b"b", b"c"))
        await consumer_group(one, "modern")
        await put(one, "simple", {"logs": {0: 1}})
        simple, modern = (one.machine.groups.get(name) for name in ("simple", "modern"))
        (row,) = groups.group_view(one.machine, simple, 1).lags.rows
        assert (row.topic, row.partition, row.committed, row.end, row.lag) == ("logs", 0, 1, 3, 2)
        assert row.client_id == ""
        (member,) = groups.group_view(one.machine, modern, 1).members
        assert member.assigned == (("logs", (0, 1, 2, 3)),)
        found = groups.groups_view(one.machine, Asked("SIMP"))
        assert [(each.group_id, each.lag) for each in found.rows] == [("simple", 2)]
        assert (found.found, found.total) == (1, 2)


async def test_a_topic_names_the_groups_that_committed_of_it() -> None:
    async with agents() as (one,):
        await one.create_topic("other", 2)
        await put(one, "simple", {"logs": {0: 1}})
        view = topics.topic_view(one.machine, one.machine.topics.by_name("logs"), 1)
        assert view.groups == ("simple",)
        other = topics.topic_view(one.machine, one.machine.topics.by_name("other"), 1)
        assert (other.groups, len(other.partitions.rows)) == ((), 2)


async def test_an_open_transaction_is_shown_with_what_takes_part() -> None:
    async with in_transaction() as (_, one):
        (row,) = transactions.transactions_view(one.machine, Asked(), only_open=True).rows
        assert (row.transactional_id, row.state) == ("id", "Ongoing")
        assert row.open_ms is not None
        assert row.places[0].startswith("logs-")
        assert row.participants >= 1
        assert cluster_view(one.machine).open_transactions == 1
        nothing = transactions.transactions_view(one.machine, Asked("none"), only_open=False)
        assert (nothing.rows, nothing.found, nothing.total) == ([], 0, 1)


async def test_too_many_partitions_are_not_summed_up(monkeypatch) -> None:
    monkeypatch.setattr(topics, "PARTITIONS_SUMMED_MAX", 5)
    async with agents() as (one,):
        await one.create_topic("other", 2)
        page = topics.topics_view(one.machine, Asked())
        assert [(row.name, row.sums is None) for row in page.rows] == [
            ("logs", False),
            ("other", True),
        ]
