"""Each action of the console, really done at an agent, and what is said before and after it."""

import pytest

from broker.calls.requester import Requester
from broker.console.actions import groups, topics, transactions
from broker.console.actions.asking import Operator
from broker.console.actions.parameters import Parameters
from broker.console.confirming import RefusalError, done_sentence
from broker.edge.local_calls import DispatchedCalls
from broker.handlers import SERVED
from protocol import apis
from protocol.messages import ConsumerGroupHeartbeatRequest
from tests.broker.groups.members import classic_group, consumer_group, put
from tests.broker.groups.world import agents, group_of
from tests.broker.transactions.world import ABORTED, in_transaction, txn_metadata
from tests.kit.batches import batch


def by(agent) -> Operator:
    calls = DispatchedCalls(agent.node, SERVED, agent.world._tasks)
    return Operator(agent.node, calls, Requester("User:ann", "10.0.0.1"))


def said(**values: str) -> Parameters:
    return Parameters(values)


def committed(agent, group_id: str) -> dict[int, int]:
    """Offsets of "logs" by partition."""
    topic_id = agent.machine.topics.by_name("logs").topic_id
    rows = agent.machine.groups.get(group_id).offsets.of_topic(topic_id)
    return {partition: row.offset for partition, row in rows}


async def refusal(work) -> str:
    with pytest.raises(RefusalError) as refused:
        await work
    return str(refused.value)


async def test_a_topic_is_created_and_a_name_that_is_taken_is_refused_with_kafkas_code() -> None:
    async with agents() as (one,):
        done = await topics.create(by(one), said(name=" new ", partitions="3"))
        assert one.machine.topics.by_name("new").partition_count == 3
        assert done.path == "/console/topic?name=new"
        assert done_sentence(done.key, done.of) == "Topic “new” was created."
        told = await refusal(topics.create(by(one), said(name="new", partitions="3")))
        assert "TOPIC_ALREADY_EXISTS (36). Choose another name." in told
        told = await refusal(topics.create(by(one), said(name="x", partitions="many")))
        assert told == "Nothing was done: partitions is a number, not “many”."


async def test_a_deletion_says_what_goes_with_the_topic_and_deletes_that_one_only() -> None:
    async with agents() as (one,):
        await one.produce("logs", batch(b"a", b"b"))
        await put(one, "simple", {"logs": {0: 1}})
        asked = await topics.plan_deletion(by(one), said(name="logs"))
        assert asked.sentence == (
            "Topic “logs” is deleted, with its 4 partitions and the 2 offsets in them. 1 group has committed"
            " offsets of it; these are forgotten."
        )
        assert (asked.typed, asked.warning) == ("logs", "Nothing brings its records back.")
        showed = dict(asked.hidden) | {"name": "logs"}
        told = await refusal(topics.delete(by(one), said(name="logs", topic_id="00" * 16)))
        assert "made anew meanwhile. UNKNOWN_TOPIC_ID (100)" in told
        assert one.machine.topics.by_name("logs") is not None
        await topics.delete(by(one), said(**showed))
        assert one.machine.topics.by_name("logs") is None
        told = await refusal(topics.plan_deletion(by(one), said(name="logs")))
        assert told.startswith("There is no topic “logs”. UNKNOWN_TOPIC_OR_PARTITION (3).")


async def test_partitions_are_added_and_never_taken_away() -> None:
    async with agents() as (one,):
        asked = await topics.plan_growth(by(one), said(name="logs"))
        assert asked.fields[0].value == "5"
        await topics.grow(by(one), said(name="logs", partitions="6"))
        assert one.machine.topics.by_name("logs").partition_count == 6
        told = await refusal(topics.grow(by(one), said(name="logs", partitions="2")))
        assert "INVALID_PARTITIONS (37). Say another number." in told


async def test_a_config_is_set_and_unset_and_a_wrong_value_is_refused() -> None:
    async with agents() as (one,):
        asked = await topics.plan_config(by(one), said(name="logs"))
        assert asked.is_question
        assert ("retention.ms", "retention.ms") in asked.fields[0].options
        change = {"name": "logs", "config": "retention.ms"}
        asked = await topics.plan_config(by(one), said(**change))
        assert asked.sentence.startswith(
            "Config retention.ms of topic “logs” is “604800000” (not set for it, so that is the default),"
        )
        assert "nothing brings them back" in asked.warning
        await topics.change_config(by(one), said(**change, value="-1", then="set"))
        assert one.machine.topics.by_name("logs").configs == {"retention.ms": "-1"}
        told = await refusal(
            topics.change_config(by(one), said(**change, value="soon", then="set"))
        )
        assert "INVALID_CONFIG (40). Say another value." in told
        await topics.change_config(by(one), said(**change, value="-1", then="unset"))
        assert one.machine.topics.by_name("logs").configs == {}
        told = await refusal(topics.plan_config(by(one), said(name="logs", config="nothing")))
        assert told == "There is no config of topics named “nothing”."


async def test_the_role_is_enough_for_a_config_of_frazils_own_where_an_authorizer_asks_others(
    caplog,
) -> None:
    rights = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    caplog.set_level("INFO", "frazil.audit")
    names = {name.replace(".", "_"): text for name, text in rights.items()}
    async with agents(**names | {"super_users": "User:ANONYMOUS"}) as (one,):
        assert one.node.rights is not None
        own = {"name": "logs", "config": "frazil.schema.validate", "value": "id", "then": "set"}
        await topics.change_config(by(one), said(**own))
        assert one.machine.topics.by_name("logs").configs == {"frazil.schema.validate": "id"}
        assert one.node.rights is not None
        told = [each.message for each in caplog.records if "User:ann" in each.message]
        assert len(told) == 1
        assert '"api": "IncrementalAlterConfigs"' in told[0]
        assert '"names": ["logs"], "errors": []' in told[0]


async def test_an_empty_group_is_deleted_and_one_with_members_is_not() -> None:
    async with agents() as (one,):
        await put(one, "simple", {"logs": {0: 1, 1: 2}})
        asked = await groups.plan_deletion(by(one), said(id="simple"))
        assert asked.sentence == "Group “simple” is deleted, with 2 committed offsets."
        assert asked.typed == "simple"
        await groups.delete(by(one), said(id="simple"))
        assert one.machine.groups.get("simple") is None
        await classic_group(one, "busy", {"logs": [0]})
        told = await refusal(groups.plan_deletion(by(one), said(id="busy")))
        assert told == (
            "Group “busy” has 1 member, and only an empty group can be deleted. NON_EMPTY_GROUP (68)."
            " Stop its consumers, or remove its members, and try again."
        )
        assert "NON_EMPTY_GROUP (68)" in await refusal(groups.delete(by(one), said(id="busy")))
        told = await refusal(groups.plan_deletion(by(one), said(id="none")))
        assert told.startswith("There is no group “none”. GROUP_ID_NOT_FOUND (69).")


@pytest.mark.parametrize(
    ("to", "time", "after"),
    [
        ("earliest", "", {0: 0, 1: 0}),
        ("latest", "", {0: 6, 1: 0}),
        ("time", "2023-11-14T22:13:25", {0: 4, 1: 0}),
        ("time", "2033-01-01T00:00", {0: 6, 1: 0}),
    ],
)
async def test_offsets_are_reset_to_where_the_page_said(to, time, after) -> None:
    async with agents() as (one,):
        early, late = 1_700_000_000_000, 1_700_000_005_000
        await one.produce("logs", batch(b"a", b"b", b"c", b"d", timestamp=early))
        await one.produce("logs", batch(b"e", b"f", timestamp=late))
        await put(one, "simple", {"logs": {0: 3, 1: 0}})
        wanted = said(id="simple", to=to, time=time)
        asked = await groups.plan_reset(by(one), wanted)
        again, skipped = max(0, 3 - after[0]), max(0, after[0] - 3)
        for count, what in ((again, "read again"), (skipped, "skipped")):
            assert f"{count} offset{'' if count == 1 else 's'} will be {what}" in asked.sentence
        assert asked.rows[1] == ("logs", "0", "3", str(after[0]))
        assert committed(one, "simple") == {0: 3, 1: 0}
        await groups.reset(by(one), Parameters({"id": "simple"} | dict(asked.hidden)))
        assert committed(one, "simple") == after


async def test_whoever_resets_is_asked_where_to_and_told_what_makes_no_sense() -> None:
    async with agents() as (one,):
        await put(one, "simple", {"logs": {0: 1}})
        asked = await groups.plan_reset(by(one), said(id="simple", to="time"))
        assert asked.is_question
        assert ("logs", "logs") in asked.fields[2].options
        told = await refusal(groups.plan_reset(by(one), said(id="simple", to="time", time="soon")))
        assert told.startswith("Nothing was done: “soon” is no time in UTC")
        told = await refusal(
            groups.plan_reset(by(one), said(id="simple", to="latest", topic="other"))
        )
        assert told == "Nothing was done: the group has committed nothing there."
        await classic_group(one, "busy", {"logs": [0]})
        for work in (groups.plan_reset, groups.reset):
            told = await refusal(work(by(one), said(id="busy", to="latest")))
            assert "only an empty group can be reset. NON_EMPTY_GROUP (68)" in told


async def test_a_member_of_the_classic_protocol_is_removed() -> None:
    async with agents() as (one,):
        (member,) = await classic_group(one, "busy", {"logs": [0]})
        removal = {"id": "busy", "member": member.member_id}
        asked = await groups.plan_removal(by(one), said(**removal))
        assert "which has 1 member; the others get its partitions" in asked.sentence
        done = await groups.remove(by(one), said(**removal))
        assert done.of == member.member_id
        await one.node.groups.settled("busy")
        assert not one.machine.groups.get("busy").members
        assert await member.heartbeat() == 25
        for work in (groups.plan_removal, groups.remove):
            told = await refusal(work(by(one), said(**removal)))
            assert "UNKNOWN_MEMBER_ID (25). The member has left already" in told


async def test_a_member_of_kip_848_is_removed_and_hears_of_it() -> None:
    async with agents() as (one,):
        (member,) = await consumer_group(one, "modern")
        removal = {"id": "modern", "member": member.member_id}
        await groups.remove(by(one), said(**removal))
        assert not one.machine.groups.get("modern").members
        request = ConsumerGroupHeartbeatRequest(
            group_id="modern", member_id=member.member_id, member_epoch=member.epoch
        )
        answer = await member.peer.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code == 25


async def test_an_agent_that_does_not_coordinate_the_group_names_the_one_that_does() -> None:
    async with agents("one", "two") as (one, two):
        group_id = group_of(one)
        await put(one, group_id, {"logs": {0: 1}})
        await two.log_client.barrier()
        for work in (groups.plan_deletion, groups.plan_reset, groups.delete):
            told = await refusal(work(by(two), said(id=group_id)))
            assert told == (
                f"Group “{group_id}” is coordinated by agent one, and only its coordinator changes it."
                " NOT_COORDINATOR (16). Open that agent's console, or use frazil group, which finds it."
            )
        assert committed(two, group_id) == {0: 1}


async def test_the_open_transaction_is_aborted_and_not_the_next_one() -> None:
    async with in_transaction() as (producer, one):
        asked = await transactions.plan_abort(by(one), said(id="id"))
        assert asked.sentence.startswith(
            f"The open transaction of “id” (producer {producer.producer_id}, epoch {producer.epoch}) is aborted,"
            " in 1 partition."
        )
        assert asked.typed == "id"
        told = await refusal(transactions.abort(by(one), said(id="id", of="1.999")))
        assert (
            "has begun another transaction than this page showed. INVALID_PRODUCER_EPOCH (47)"
            in told
        )
        await transactions.abort(by(one), Parameters({"id": "id"} | dict(asked.hidden)))
        assert txn_metadata(one).state is ABORTED
        told = await refusal(transactions.plan_abort(by(one), said(id="id")))
        assert told == (
            "No transaction of “id” is open: it is CompleteAbort. INVALID_TXN_STATE (48). There is nothing to abort."
        )
        told = await refusal(transactions.plan_abort(by(one), said(id="none")))
        assert "TRANSACTIONAL_ID_NOT_FOUND (105)" in told


async def test_without_a_session_nothing_is_done() -> None:
    async with agents() as (one,):
        await one.lose_session()
        told = await refusal(topics.create(by(one), said(name="new", partitions="1")))
        assert "no session" in told
        assert told.endswith(
            "NOT_CONTROLLER (41). Wait until this agent is ready, or ask another one."
        )
