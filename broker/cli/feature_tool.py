"""`frazil feature`: the cluster's features and the levels they are finalized at (KIP-584).

Works on any cluster that speaks Kafka's protocol. Leaves out: formatting (`broker.reports.txn_report`).
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.routing import told
from broker.reports import txn_report
from broker.reports.txn_report import FeatureView
from protocol import apis, messages

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
FEATURES_SINCE: Final = 3
"""Version of ApiVersions; the tool names itself as it does when it connects."""
TYPES_SINCE: Final = 1
"""Version of UpdateFeatures."""


class Level(NamedTuple):
    feature: str
    level: int


def level(text: str) -> Level:
    """`transaction.version=2`. Raises ValueError with a sentence."""
    name, equals, number = text.partition("=")
    if not (name and equals and number.isascii() and number.isdigit() and int(number) < 1 << 15):
        raise ValueError(f'"{text}" is not a level (example: transaction.version=2)')
    return Level(name, int(number))


async def describe(client: KafkaClient, *, as_json: bool = False) -> CommandResult:
    """All features with what is supported and what is finalized."""
    request = messages.ApiVersionsRequest(
        client_software_name="frazil", client_software_version="0"
    )

    async def attempt() -> messages.ApiVersionsResponse:
        answer: messages.ApiVersionsResponse = await client.ask(
            apis.API_VERSIONS, request, oldest=FEATURES_SINCE
        )
        check(answer.error_code, "features are not told")
        return answer

    answer = await client.until_done(attempt)
    supported = {row.name: row for row in answer.supported_features}
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    found = []
    for name in sorted({*supported, *levels}):
        row = supported.get(name)
        least = None if row is None else row.min_version
        most = None if row is None else row.max_version
        found.append(FeatureView(name, least, most, levels.get(name, 0)))
    epoch = answer.finalized_features_epoch
    if as_json:
        return CommandResult([json.dumps(txn_report.feature_json(found, epoch))])
    return CommandResult(txn_report.feature_lines(found, epoch))


async def change(
    client: KafkaClient, wanted: Sequence[Level], *, kind: int, dry_run: bool
) -> CommandResult:
    """Finalize other levels, all or none. Raises ToolError."""
    request = messages.UpdateFeaturesRequest(
        feature_updates=[
            messages.FeatureUpdateKey(
                feature=each.feature, max_version_level=each.level, upgrade_type=kind
            )
            for each in wanted
        ],
        validate_only=dry_run,
    )

    async def attempt() -> None:
        answer = await client.ask(apis.UPDATE_FEATURES, request, oldest=TYPES_SINCE)
        check(answer.error_code, answer.error_message or "")
        for row in answer.results:
            check(row.error_code, f"{row.feature}: {row.error_message or 'refused'}")

    await told("nothing is changed", client.until_done(attempt), txn_report.WORDS)
    done = "could be" if dry_run else "is"
    return CommandResult([f"{each.feature} {done} at level {each.level}" for each in wanted])
