"""Agents with an authorizer, for tests: who asks, and ACLs in short."""

from typing import Any

from broker.calls.requester import Requester
from coordinator.commands.rights_commands import AclBinding, CreateAcls, DeleteAcls
from protocol import apis
from protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.kit.client import Client

AUTHORIZED = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:admin",
}
"""Settings of an agent."""
ADMIN = Requester("User:admin", "10.0.0.1")
BOB = Requester("User:bob", "10.0.0.2")


def acl(
    operation: Operation,
    resource_type: ResourceType = ResourceType.TOPIC,
    name: str = WILDCARD,
    *,
    deny: bool = False,
    prefix: bool = False,
    host: str = WILDCARD,
    principal: str = BOB.principal,
) -> AclBinding:
    """One for Bob, of everything of the type unless told otherwise."""
    if resource_type is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    return AclBinding(
        resource_type,
        PatternType.PREFIXED if prefix else PatternType.LITERAL,
        name,
        principal,
        host,
        operation,
        Permission.DENY if deny else Permission.ALLOW,
    )


async def allow(agent: Any, *bindings: AclBinding) -> None:
    await agent.log_client.propose(CreateAcls(bindings))


async def withdraw(agent: Any, *bindings: AclBinding) -> None:
    await agent.log_client.propose(DeleteAcls(bindings))


def connect(agent: Any, who: Requester = BOB) -> Client:
    """A connection of somebody."""
    client: Client = agent.connect(address=who.host)
    client.protocol.requester = who
    return client


async def ask(
    agent: Any, key: int, request: Any, *, who: Requester = BOB, version: int | None = None
) -> Any:
    """The answer to a request of somebody."""
    newest = apis.APIS[key].max_version if version is None else version
    return await connect(agent, who).call(key, newest, request)
