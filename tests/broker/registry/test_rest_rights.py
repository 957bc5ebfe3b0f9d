"""A registry with users and an authorizer, over sockets: what who may see and do."""

import aiohttp
import pytest

from broker.registry.errors import FORBIDDEN
from broker.sasl.scram_keys import credential_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.commands.rights_commands import CreateAcls
from protocol.acls import Operation, ResourceType
from tests.broker.registry.client import BROKEN, RECORD, WIDER, Registry, registry_of
from tests.broker.rights.acls import acl
from tests.kit.sockets import Place

pytestmark = pytest.mark.real_loop

SHA_512 = ScramMechanism.SCRAM_SHA_512
FLAGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin",
    "schema.registry.basic.auth.user.info=admin:pw,bob:pw",
    "listener.name.registry.sasl.enabled.mechanisms=SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms=0",
)


class As:
    """What somebody is told."""

    def __init__(self, registry: Registry, user: str, password: str = "pw") -> None:
        self._registry = registry
        self._headers = {"Authorization": aiohttp.encode_basic_auth(user, password)}

    async def ask(self, method: str, path: str, body: object = None):
        """Status, and the JSON or the error's code."""
        status, told = await self._registry.ask(method, path, body, headers=self._headers)
        return (status, told) if status == 200 else (status, told["error_code"])


async def allow(registry: Registry, *bindings) -> None:
    await registry.running.agent.node.log_client.propose(CreateAcls(bindings))


async def test_a_producer_registers_for_its_topics_and_a_consumer_reads() -> None:
    async with registry_of(Place(), *FLAGS) as registry:
        await allow(
            registry, acl(Operation.WRITE, name="orders"), acl(Operation.READ, name="bills")
        )
        admin, bob = As(registry, "admin"), As(registry, "bob")
        body = {"schema": RECORD}
        status, told = await bob.ask("POST", "/subjects/orders-value/versions", body)
        assert (status, told["id"]) == (200, 1)
        assert (await bob.ask("POST", "/subjects/orders-value", body))[0] == 200
        for subject in ("bills-value", "others-value"):
            path = f"/subjects/{subject}/versions"
            assert await bob.ask("POST", path, body) == (403, FORBIDDEN)
            assert (await admin.ask("POST", path, {"schema": WIDER}))[0] == 200
        assert (await bob.ask("GET", "/subjects/bills-value/versions/1"))[0] == 200
        assert await bob.ask("GET", "/subjects/others-value/versions/1") == (403, FORBIDDEN)
        assert await bob.ask("GET", "/subjects/nowhere-value/versions/1") == (403, FORBIDDEN)
        assert (await bob.ask("GET", "/subjects"))[1] == ["bills-value", "orders-value"]
        assert [each["subject"] for each in (await bob.ask("GET", "/schemas"))[1]] == [
            "bills-value",
            "orders-value",
        ]
        assert (await admin.ask("GET", "/subjects"))[1][-1] == "others-value"


async def test_a_schema_by_its_id_is_for_who_sees_a_subject_that_has_it() -> None:
    async with registry_of(Place(), *FLAGS) as registry:
        admin, bob = As(registry, "admin"), As(registry, "bob")
        for subject, schema in (("a-value", RECORD), ("b-value", RECORD), ("c-value", WIDER)):
            path = f"/subjects/{subject}/versions"
            assert (await admin.ask("POST", path, {"schema": schema}))[0] == 200
        await allow(registry, acl(Operation.READ, name="b"))
        assert (await bob.ask("GET", "/schemas/ids/1"))[1]["schema"] == RECORD
        assert (await bob.ask("GET", "/schemas/ids/1/subjects"))[1] == ["b-value"]
        guid = (await bob.ask("GET", "/schemas/ids/1"))[1].get("guid")
        assert guid is None or (await bob.ask("GET", f"/schemas/guids/{guid}"))[0] == 200
        for path in ("", "/schema", "/subjects", "/versions"):
            assert await bob.ask("GET", f"/schemas/ids/2{path}") == (403, FORBIDDEN)
        assert (await bob.ask("GET", "/schemas/ids/3"))[0] == 404


async def test_a_reference_to_a_subject_that_one_may_not_see_is_refused() -> None:
    async with registry_of(Place(), *FLAGS) as registry:
        await allow(registry, acl(Operation.WRITE, name="orders"))
        reference = {"name": "R", "subject": "secret-value", "version": 1}
        body = {"schema": BROKEN, "references": [reference]}
        told = await As(registry, "bob").ask("POST", "/subjects/orders-value/versions", body)
        assert told == (403, FORBIDDEN)


async def test_levels_and_deletions_need_rights_of_their_own() -> None:
    async with registry_of(Place(), *FLAGS) as registry:
        admin, bob = As(registry, "admin"), As(registry, "bob")
        path = "/subjects/orders-value/versions"
        assert (await admin.ask("POST", path, {"schema": RECORD}))[0] == 200
        await allow(registry, acl(Operation.WRITE, name="orders"))
        level = {"compatibility": "FULL"}
        refused = (403, FORBIDDEN)
        assert await bob.ask("PUT", "/config/orders-value", level) == refused
        assert await bob.ask("DELETE", "/subjects/orders-value") == refused
        assert await bob.ask("PUT", "/config", level) == refused
        await allow(
            registry,
            acl(Operation.ALTER_CONFIGS, name="orders"),
            acl(Operation.DELETE, name="orders"),
        )
        assert (await bob.ask("PUT", "/config/orders-value", level))[0] == 200
        assert await bob.ask("PUT", "/config", level) == refused
        assert (await bob.ask("DELETE", "/subjects/orders-value"))[0] == 200
        await allow(registry, acl(Operation.ALTER_CONFIGS, ResourceType.CLUSTER))
        assert (await bob.ask("PUT", "/config", level))[0] == 200


async def test_users_of_the_log_log_in_and_a_changed_password_counts_at_once() -> None:
    async with registry_of(Place(), *FLAGS) as registry:
        log_client = registry.running.agent.node.log_client

        async def set_password(password: str) -> None:
            salted = salted_password(SHA_512, password, salt=b"salt", iterations=4096)
            await log_client.propose(
                credential_of("carl", SHA_512, salted, salt=b"salt", iterations=4096)
            )

        await set_password("first")
        assert (await As(registry, "carl", "first").ask("GET", "/subjects")) == (200, [])
        await set_password("second")
        assert (await As(registry, "carl", "first").ask("GET", "/subjects")) == (401, 401)
        assert (await As(registry, "carl", "second").ask("GET", "/subjects")) == (200, [])
        status, body = await registry.ask("GET", "/subjects")
        assert (status, body["error_code"]) == (401, 401)
        stats = registry.running.agent.node.stats
        assert stats.authentications["HTTP Basic", "refused"] == 1
