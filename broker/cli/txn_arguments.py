"""The arguments of `frazil txn` and `frazil feature`; the rest of the command line is `broker.cli.main`.

What a command needs is imported when it is called.
"""

import argparse
from typing import TYPE_CHECKING, Any, Final

from broker.cli.arguments import (
    INT_MAX,
    LONG_MAX,
    checked,
    cluster_tool,
    duration_ms,
    on_cluster,
    state,
    whole,
)

if TYPE_CHECKING:
    from broker.cli.feature_tool import Level

HANGING_MINUTES: Final = 15
"""The longest that a transaction may be open, by Kafka's default (`transaction.max.timeout.ms`)."""


def add_txn(commands: Any) -> None:
    """`frazil txn`, with its commands; flags are those of kafka-transactions.sh where it has them."""
    add = cluster_tool(
        commands,
        "txn",
        "transactions: list, describe, abort, find-hanging",
        need="what of them? list, describe, abort or find-hanging",
    )
    listing = add("list", _list, "transactional ids")
    listing.add_argument("--state", action="append", default=[], type=_state, metavar="STATE")
    listing.add_argument(
        "--producer-id", action="append", default=[], type=whole(0, LONG_MAX), metavar="ID"
    )
    listing.add_argument(
        "--longer-than", type=duration_ms, metavar="PnDTnHnMnS", help="open for longer than that"
    )
    listing.add_argument("--pattern", metavar="RE2", help="ids that are wholly like that")

    listing.add_argument(
        "--json",
        action="store_true",
        help="a list of {transactional_id, state, producer_id, coordinator}",
    )

    describing = add("describe", _describe, "one id, and what takes part")
    describing.add_argument("id", metavar="ID")
    describing.add_argument("--json", action="store_true", help="as one JSON object")

    aborting = add("abort", _abort, "give an open transaction up")
    aborting.add_argument("id", metavar="ID", nargs="?")
    aborting.add_argument("--topic", metavar="TOPIC", help="without an ID: where it is open,")
    aborting.add_argument(
        "--partition", type=whole(0, INT_MAX), metavar="N", help="and in which partition,"
    )
    aborting.add_argument(
        "--start-offset", type=whole(0, LONG_MAX), metavar="N", help="and where it begins,"
    )
    aborting.add_argument(
        "--producer-id", type=whole(0, LONG_MAX), metavar="N", help="or whose it is"
    )

    finding = add(
        "find-hanging",
        _find_hanging,
        "transactions that are open in a partition and that no coordinator knows of",
    )
    finding.add_argument("--topic", action="append", metavar="TOPIC", help="(all topics)")
    finding.add_argument(
        "--max-transaction-timeout",
        type=whole(0, INT_MAX),
        default=HANGING_MINUTES,
        metavar="MINUTES",
        help=f"leave alone what wrote since ({HANGING_MINUTES})",
    )
    finding.add_argument(
        "--json",
        action="store_true",
        help="a list of {topic, partition, producer_id, producer_epoch, start_offset, last_timestamp_ms,"
        " transactional_id}",
    )


def add_feature(commands: Any) -> None:
    """`frazil feature`, with its commands; flags are those of kafka-features.sh."""
    add = cluster_tool(
        commands,
        "feature",
        "features of the cluster: describe, upgrade, downgrade",
        need="what of them? describe, upgrade or downgrade",
    )
    describing = add("describe", _features, "features and their levels")
    describing.add_argument(
        "--json", action="store_true", help="{epoch, features: [{name, least, most, level}]}"
    )
    for name, text in (("upgrade", "raise levels"), ("downgrade", "lower levels")):
        parser = add(name, _change, text)
        parser.add_argument(
            "--feature",
            action="append",
            required=True,
            type=_level,
            metavar="NAME=LEVEL",
            help="may be repeated",
        )
        parser.add_argument("--dry-run", action="store_true", help="only say whether it could be")
        if name == "downgrade":
            parser.add_argument("--unsafe", action="store_true", help="also when it loses data")


def _list(options: argparse.Namespace) -> int:
    from broker.cli import txn_tool

    wanted = txn_tool.TransactionFilter(
        states=tuple(options.state),
        producer_ids=tuple(options.producer_id),
        longer_than_ms=options.longer_than,
        pattern=options.pattern,
    )
    return on_cluster(
        options,
        lambda client: txn_tool.list_transactions(client, wanted, as_json=options.json),
    )


def _describe(options: argparse.Namespace) -> int:
    from broker.cli import txn_tool
    from broker.environment import now_ms

    return on_cluster(
        options,
        lambda client: txn_tool.describe(client, options.id, now_ms=now_ms(), as_json=options.json),
    )


def _abort(options: argparse.Namespace) -> int:
    from broker.cli import txn_tool

    where = (options.topic, options.partition)
    which = (options.start_offset, options.producer_id)
    if options.id is not None:
        if (*where, *which) != (None,) * 4:
            raise ValueError("either an ID, or a partition: not both")
        return on_cluster(options, lambda client: txn_tool.abort(client, options.id))
    if None in where or which.count(None) != 1:
        raise ValueError(
            "which one? an ID, or --topic, --partition, and --start-offset or --producer-id"
        )
    return on_cluster(
        options,
        lambda client: txn_tool.abort_in(
            client, where, start_offset=options.start_offset, producer_id=options.producer_id
        ),
    )


def _find_hanging(options: argparse.Namespace) -> int:
    from broker.cli import txn_tool
    from broker.environment import now_ms

    return on_cluster(
        options,
        lambda client: txn_tool.find_hanging(
            client,
            options.topic,
            longer_than_ms=options.max_transaction_timeout * 60_000,
            now_ms=now_ms(),
            as_json=options.json,
        ),
    )


def _features(options: argparse.Namespace) -> int:
    from broker.cli import feature_tool

    return on_cluster(options, lambda client: feature_tool.describe(client, as_json=options.json))


def _change(options: argparse.Namespace) -> int:
    from broker.cli import feature_tool

    kind = feature_tool.UPGRADE
    if hasattr(options, "unsafe"):
        kind = feature_tool.UNSAFE_DOWNGRADE if options.unsafe else feature_tool.SAFE_DOWNGRADE
    return on_cluster(
        options,
        lambda client: feature_tool.change(
            client, options.feature, kind=kind, dry_run=options.dry_run
        ),
    )


def _level(text: str) -> "Level":
    from broker.cli.feature_tool import level

    return checked(level)(text)


def _state(text: str) -> str:
    """A transaction's state by its name, whatever the case."""
    from broker.reports.txn_report import STATES

    return state(text, STATES)
