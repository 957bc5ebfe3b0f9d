"""Every API: allowed with the rights that it declares, refused without one, and silent about topics.

One matrix over all declarations, so a new API has it for free. The requests are those of
`test_every_api`: one of everything that a request can name, under the name "t".
"""

import pytest

from broker.guards import CODES
from broker.handlers import SERVED
from protocol import apis
from protocol.acls import ResourceType
from protocol.errors import ErrorCode
from tests.broker.handlers.test_every_api import EVERY_API, errors, request_of
from tests.broker.rights.acls import ADMIN, AUTHORIZED, BOB, acl, allow, ask

BY_NAME = {
    apis.PRODUCE: 12,
    apis.FETCH: 12,
    apis.OFFSET_COMMIT: 9,
    apis.OFFSET_FETCH: 9,
}
"""The newest versions that name topics, and not their ids."""
REFUSALS = {*CODES.values(), ErrorCode.SECURITY_DISABLED}
LISTINGS = {apis.LIST_GROUPS, apis.LIST_TRANSACTIONS, apis.DESCRIBE_DELEGATION_TOKEN}
"""What may not be seen is left out."""
OF_ONE_KIND = {
    apis.FIND_COORDINATOR,
    apis.INIT_PRODUCER_ID,
    apis.DESCRIBE_CONFIGS,
    apis.ALTER_CONFIGS,
    apis.INCREMENTAL_ALTER_CONFIGS,
    apis.CREATE_TOPICS,
}
"""Rights are about one kind of resource or another; the samples ask for the first, or, of topics
that are to be created, only need it."""
GUARDED = [api for api in SERVED.values() if api.rights and api.key not in LISTINGS]


def needed(api):
    """Those that the sample needs: its batch belongs to no transaction."""
    if api.key == apis.PRODUCE:
        return api.rights[1:]
    return api.rights[:1] if api.key in OF_ONE_KIND else api.rights


MISSING = [(api, index) for api in GUARDED for index in range(len(needed(api)))]
NAMES_TOPICS = [
    api for api in GUARDED if any(right.resource is ResourceType.TOPIC for right in needed(api))
]


def given(right):
    return acl(right.operation, right.resource)


async def answer(agent, api, who=BOB):
    return await ask(agent, api.key, request_of(api), who=who, version=BY_NAME.get(api.key))


def refusals(response):
    return REFUSALS & {*errors(response)}


@pytest.mark.parametrize("api", GUARDED, ids=lambda api: api.name)
async def test_without_any_right_a_request_is_refused_and_nothing_happens(api, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        await one.create_topic("t", 2)
        head = world.cluster.head()
        barriers = one.log_client.stats.barriers
        response = await answer(one, api)
        assert CODES[needed(api)[0].resource] in refusals(response) or refusals(response) == {
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }
        assert world.cluster.head() == head
        assert one.log_client.stats.barriers == barriers
        assert world.store.puts == []


@EVERY_API
async def test_with_the_rights_that_it_declares_nothing_of_a_request_is_refused(api, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        await one.create_topic("t", 2)
        await allow(one, *map(given, api.rights))
        assert refusals(await answer(one, api)) == set()


@EVERY_API
async def test_a_super_user_needs_no_rights(api, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        await one.create_topic("t", 2)
        assert refusals(await answer(one, api, ADMIN)) == set()


@pytest.mark.parametrize(
    ("api", "index"), MISSING, ids=lambda each: getattr(each, "name", str(each))
)
async def test_without_one_of_its_rights_a_request_is_refused_for_that(api, index, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        await one.create_topic("t", 2)
        rights = needed(api)
        await allow(one, *[given(right) for right in rights if right is not rights[index]])
        missing = rights[index]
        code = CODES[missing.resource]
        if missing.resource is ResourceType.CLUSTER and missing.instead is not None:
            code = CODES[missing.instead.resource]
        assert refusals(await answer(one, api)) == {code}


@pytest.mark.parametrize("api", NAMES_TOPICS, ids=lambda api: api.name)
async def test_who_has_no_right_cannot_tell_a_topic_that_is_there_from_one_that_is_not(api, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        others = [right for right in needed(api) if right.resource is not ResourceType.TOPIC]
        await allow(one, *map(given, others))
        before = await answer(one, api)
        await one.create_topic("t", 2)
        assert await answer(one, api) == before


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_rights_about_parts_of_requests_are_asked_for_by_what_knows_the_parts(api):
    """Without a `narrow` a right is about the whole; so it may not be of one among several."""
    narrow = getattr(api.handler, "narrow", None)
    is_parsed_by_hand = api.key in {apis.PRODUCE, apis.FETCH, apis.HEARTBEAT}
    has_parts = any("[]" in path for right in api.rights for path in right.paths)
    is_hot_in_shapes = api.key == apis.CONSUMER_GROUP_HEARTBEAT  # All or nothing, as in Kafka.
    assert not has_parts or narrow is not None or is_parsed_by_hand or is_hot_in_shapes
