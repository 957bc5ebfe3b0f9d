"""Secrets that stand in settings are in no description of them, and in nothing that shows them."""

from protocol import apis, messages

SECRET = "hunter2"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
SETTINGS = {
    "listeners": "SASL://:9092",
    "listener_security_protocol_map": "SASL:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "sasl_jaas_config": JAAS,
    "listener_name_sasl_plain_sasl_jaas_config": JAAS,
    "first_users": f"SCRAM-SHA-512=[name=alice,password={SECRET}]",
}


async def test_passwords_of_login_modules_and_first_users_are_not_described(world):
    async with world.agents("one", **SETTINGS) as (one,):
        agent = messages.DescribeConfigsResource(
            resource_type=4, resource_name=str(one.node_id), configuration_keys=None
        )
        request = messages.DescribeConfigsRequest(resources=[agent], include_synonyms=True)
        answer = await one.call(apis.DESCRIBE_CONFIGS, request)
        (described,) = answer.results
        rows = {row.name: row for row in described.configs}
        assert rows["sasl.jaas.config"].is_sensitive
        assert rows["sasl.jaas.config"].value is None
        assert SECRET not in repr(answer)
        assert SECRET not in repr(one.node.settings)
