"""UpdateFeatures and the features in ApiVersions (KIP-584, KIP-1022)."""

import asyncio
from dataclasses import replace

import pytest

from broker.cluster.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import Entry, Open
from coordinator.log.memory import MemoryLog
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import ApiVersionsRequest, FeatureUpdateKey, UpdateFeaturesRequest
from protocol.types import INCARNATION_NONE

CLIENT = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
TRANSACTION_VERSION = "transaction.version"
FAILED = "The update failed for all features since the following feature had an error: "


async def told(agent) -> tuple[int, int]:
    """Epoch and level of transaction.version."""
    answer = await agent.call(apis.API_VERSIONS, CLIENT)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    assert levels.get(TRANSACTION_VERSION) != 0, "a level of 0 is told by not telling it"
    return answer.finalized_features_epoch, levels.get(TRANSACTION_VERSION, 0)


def update(level: int, kind: int = UPGRADE, *, feature: str = TRANSACTION_VERSION):
    return FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)


async def change(agent, *updates, version: int = 2, validate_only: bool = False):
    request = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    return await agent.call(apis.UPDATE_FEATURES, request, version=version)


async def test_a_new_cluster_begins_with_the_highest_level(world):
    async with world.agents("one") as (one,):
        epoch, level = await told(one)
        assert (epoch > 0, level) == (True, 2)


@pytest.mark.parametrize("version", range(3))
async def test_levels_go_down_and_up_for_all_agents_and_each_change_has_a_newer_epoch(
    version, world
):
    async with world.agents("one", "two") as (one, two):
        before, _ = await told(one)
        for level, kind in (
            (1, SAFE_DOWNGRADE),
            (0, UNSAFE_DOWNGRADE),
            (1, UPGRADE),
            (2, UPGRADE),
        ):
            wanted = update(level, kind)
            if version == 0:
                wanted = FeatureUpdateKey(
                    feature=TRANSACTION_VERSION,
                    max_version_level=level,
                    allow_downgrade=kind != UPGRADE,
                )
            answer = await change(one, wanted, version=version)
            assert (answer.error_code, answer.error_message or "") == (0, "")
            rows = [(row.feature, row.error_code) for row in answer.results]
            assert rows == ([] if version == 2 else [(TRANSACTION_VERSION, 0)])
            await two.log_client.barrier()
            assert await told(one) == await told(two)
            epoch, now = await told(two)
            assert now == level
            assert epoch > before
            before = epoch


async def test_a_level_that_is_there_already_changes_nothing(world):
    async with world.agents("one") as (one,):
        before = await told(one)
        for kind in (UPGRADE, SAFE_DOWNGRADE):
            assert (await change(one, update(2, kind))).error_code == 0
        others = update(1, feature="group.version"), update(30, feature="metadata.version")
        assert (await change(one, *others)).error_code == 0
        assert await told(one) == before


async def test_what_is_only_to_be_validated_is_not_done(world):
    async with world.agents("one") as (one,):
        before = await told(one)
        wanted = update(1, SAFE_DOWNGRADE)
        assert (await change(one, wanted, validate_only=True)).error_code == 0
        refused = await change(one, update(3), validate_only=True)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert await told(one) == before


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (update(3), "The agents only support versions 0-2"),
        (update(-1), "A feature version cannot be less than 0."),
        (update(1), "Can't downgrade the version of this feature without setting"),
        (update(1, feature="fine.version"), "The agents do not support this feature."),
        (update(0, SAFE_DOWNGRADE, feature="group.version"), "Its level is always 1."),
        (update(6, SAFE_DOWNGRADE, feature="metadata.version"), "only support versions 7-30"),
    ],
)
async def test_a_level_that_cannot_be_is_refused_at_the_top_as_by_kafkas_controller(
    wanted, reason, version, world
):
    if version == 0:
        wanted = replace(wanted, allow_downgrade=wanted.upgrade_type != UPGRADE, upgrade_type=1)

    async with world.agents("one") as (one,):
        before = await told(one)
        answer = await change(one, wanted, version=version)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message.startswith(
            f"{FAILED}Invalid update version {wanted.max_version_level}"
            f" for feature {wanted.feature}. "
        )
        assert reason in answer.error_message
        assert answer.results == []
        assert await told(one) == before


@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
async def test_a_downgrade_does_not_go_up(kind, world):
    async with world.agents("one") as (one,):
        await change(one, update(0, SAFE_DOWNGRADE))
        answer = await change(one, update(1, kind))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Can't downgrade to a newer version." in answer.error_message


@pytest.mark.parametrize("kind", [0, 4])
async def test_a_type_of_update_that_nobody_knows_is_refused(kind, world):
    async with world.agents("one") as (one,):
        answer = await change(one, update(1, kind))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "does not support the given upgrade type" in answer.error_message


async def test_all_updates_of_a_request_are_done_or_none(world):
    async with world.agents("one") as (one,):
        before = await told(one)
        wanted = update(1, SAFE_DOWNGRADE), update(9, feature="group.version")
        answer = await change(one, *wanted)
        assert "for feature group.version." in answer.error_message
        assert await told(one) == before


async def test_an_agent_that_is_too_old_keeps_the_level_down(world):
    async with world.agents("one") as (one,):
        await change(one, update(0, SAFE_DOWNGRADE))
        log = MemoryLog(world.cluster)
        session = await log.grant(600_000)
        command = Open(
            session=session,
            node_name="old",
            node_id=-1,
            zone="",
            listeners=(),
            software_version="0",
            feature_level_max=0,
        )
        entry = Entry(INCARNATION_NONE, 0, world.now_ms(), (command,))
        await log.open(session, encode_entry(entry))
        answer = await change(one, update(2))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "the live agent 'old' is too old" in answer.error_message
        assert (await told(one))[1] == 0


@pytest.mark.promise("P8")
async def test_an_agent_judges_by_what_others_have_changed(world):
    """P8: the downgrade is told by the other agent before this one has heard of it."""
    async with world.agents("one", "two") as (one, two):
        two.lag()
        await change(one, update(0, SAFE_DOWNGRADE))
        asyncio.get_running_loop().call_later(1.0, two.catch_up)
        answer = await change(two, update(1, SAFE_DOWNGRADE))
        assert "Can't downgrade to a newer version." in answer.error_message


async def test_a_feature_that_is_named_twice_is_taken_as_named_first(world):
    """As Kafka reads the list."""
    async with world.agents("one") as (one,):
        wanted = update(1, SAFE_DOWNGRADE), update(0, SAFE_DOWNGRADE)
        assert (await change(one, *wanted)).error_code == 0
        assert (await told(one))[1] == 1


@pytest.mark.promise("P4")
async def test_an_update_whose_fate_is_open_is_said_to_have_timed_out(world):
    """P4: the append is in, or not; nobody knows yet."""
    async with world.agents("one") as (one,):
        one.lag()
        request = UpdateFeaturesRequest(feature_updates=[update(1, SAFE_DOWNGRADE)], timeout_ms=200)
        answer = await one.call(apis.UPDATE_FEATURES, request)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        one.catch_up()
        await one.log_client.barrier()
        assert (await told(one))[1] == 1
