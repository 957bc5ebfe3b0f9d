"""`frazil quota`: what users, client ids and addresses may use (KIP-546), as `kafka-configs.sh` sets it.

Works on any cluster that speaks Kafka's protocol. An entity is a user, a client id, both, or an address; each may be
the default, of all that have no quota of their own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.routing import told
from broker.cli.topics.requests import WORDS
from broker.reports.tables import Cell, table
from protocol import apis, messages

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

Entity = Mapping[str, str | None]
"""Names by type; None is the default."""

EXACT, DEFAULT = 0, 1
"""How an entity is looked for."""


def words(entity: Entity) -> str:
    """An entity, in a sentence."""
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items()
    )


async def describe(client: KafkaClient, entity: Entity, *, as_json: bool) -> CommandResult:
    """The quotas of exactly this entity; of all when it is empty. Raises ToolError, ClientError."""
    request = messages.DescribeClientQuotasRequest(
        components=[
            messages.ComponentData(
                entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name
            )
            for kind, name in entity.items()
        ],
        strict=bool(entity),
    )

    async def attempt() -> Sequence[messages.EntryData]:
        answer = await client.ask(apis.DESCRIBE_CLIENT_QUOTAS, request)
        check(answer.error_code, answer.error_message or "")
        return answer.entries or []

    entries = await told("quotas are not told", client.until_done(attempt), WORDS)
    found = sorted(map(_plain, entries), key=lambda one: words(one[0]))
    if as_json:
        return CommandResult([json.dumps([{"entity": of, "quotas": has} for of, has in found])])
    rows: list[list[Cell]] = [
        [words(of), name, f"{value:.15g}"] for of, has in found for name, value in has.items()
    ]
    if not rows:
        return CommandResult([f"{words(entity)} has no quota" if entity else "there are no quotas"])
    return CommandResult(table(("ENTITY", "QUOTA", "VALUE"), rows))


def _plain(entry: messages.EntryData) -> tuple[dict[str, str | None], dict[str, float]]:
    """The entity, users first, and its quotas by name."""
    names = {one.entity_type: one.entity_name for one in entry.entity}
    entity: dict[str, str | None] = {
        kind: names[kind] for kind in (USER, CLIENT_ID, IP) if kind in names
    }
    return entity, dict(sorted((one.key, one.value) for one in entry.values))


async def alter(
    client: KafkaClient,
    entity: Entity,
    *,
    setting: Mapping[str, float],
    unsetting: Sequence[str],
    dry_run: bool,
) -> CommandResult:
    """All of it or nothing. Raises ToolError, ClientError."""
    request = messages.AlterClientQuotasRequest(
        entries=[
            messages.AlterClientQuotasEntry(
                entity=[
                    messages.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=[
                    *[messages.OpData(key=name, value=value) for name, value in setting.items()],
                    *[messages.OpData(key=name, remove=True) for name in unsetting],
                ],
            )
        ],
        validate_only=dry_run,
    )

    async def attempt() -> None:
        answer = await client.ask(apis.ALTER_CLIENT_QUOTAS, request)
        for row in answer.entries:
            check(row.error_code, row.error_message or "")

    await told(f"quotas of {words(entity)}", client.until_done(attempt), WORDS)
    done = [*[f"set {name}={value:.15g}" for name, value in setting.items()]]
    done += [f"unset {name}" for name in unsetting]
    return CommandResult(
        [f"quotas of {words(entity)} {'would be' if dry_run else 'are'} altered: {', '.join(done)}"]
    )
