"""DescribeClientQuotas: there are none, and what a filter may say is Kafka's."""

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import ComponentData, DescribeClientQuotasRequest


async def described(agent, *types: str):
    components = [ComponentData(entity_type=each, match_type=2) for each in types]
    request = DescribeClientQuotasRequest(components=components, strict=True)
    return await agent.call(apis.DESCRIBE_CLIENT_QUOTAS, request)


@pytest.mark.parametrize("types", [(), ("user",), ("user", "client-id"), ("ip",)])
async def test_there_are_no_quotas(types, world):
    async with world.agents("one") as (one,):
        answer = await described(one, *types)
        assert (answer.error_code, answer.entries) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("types", "code"),
    [
        (("",), ErrorCode.INVALID_REQUEST),
        (("user", "user"), ErrorCode.INVALID_REQUEST),
        (("ip", "user"), ErrorCode.INVALID_REQUEST),
        (("planet",), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_filter_that_kafka_does_not_take_is_refused(types, code, world):
    async with world.agents("one") as (one,):
        answer = await described(one, *types)
        assert (answer.error_code, answer.entries) == (code, None)
        assert answer.error_message
