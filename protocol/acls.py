"""Kafka's numbers of rights: resources, patterns, operations, permissions (KIP-11, KIP-290). Pure.

Of an ACL that is kept, each has one of the real values; ANY, and MATCH of patterns, are for filters
alone. Left out: what an ACL decides (`broker.rights`), where ACLs are kept (`coordinator.tables.administration.acls`).
"""

from enum import IntEnum
from typing import Final


class ResourceType(IntEnum):
    """What rights are about (`org.apache.kafka.common.resource.ResourceType`)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL's resource is meant (`org.apache.kafka.common.resource.PatternType`)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: whatever applies to the resource of that name."""
    LITERAL = 3
    """This name, or all of them (WILDCARD)."""
    PREFIXED = 4


class Operation(IntEnum):
    """What is done to a resource (`org.apache.kafka.common.acl.AclOperation`)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL gives or takes (`org.apache.kafka.common.acl.AclPermissionType`)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
"""The literal name of all resources of a type; the host of everybody."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""Everybody."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The one name that a resource of type CLUSTER has."""

_COMMON: Final = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DELETE})
_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})
OPERATIONS: Final = {
    ResourceType.TOPIC: _COMMON | _CONFIGS | {Operation.WRITE, Operation.CREATE, Operation.ALTER},
    ResourceType.GROUP: _COMMON | _CONFIGS,
    ResourceType.CLUSTER: _CONFIGS
    | {
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
    },
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
"""What can be done to a resource of each type (Kafka's AclEntry.supportedOperations)."""
