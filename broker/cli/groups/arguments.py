"""The arguments of `frazil group`; its flags are those of kafka-consumer-groups.sh.

What a command needs is imported when it is called.
"""

import argparse
from typing import TYPE_CHECKING, Any

from broker.cli.arguments import (
    LONG_MAX,
    cluster_tool,
    datetime_ms,
    duration_ms,
    on_cluster,
    state,
    whole,
)
from broker.cli.completion import completes_groups

if TYPE_CHECKING:
    from broker.cli.groups.group_reset import ResetTarget


def add_group(commands: Any) -> None:
    """`frazil group`, with its commands; flags are those of kafka-consumer-groups.sh."""
    add = cluster_tool(
        commands,
        "group",
        "consumer groups: list, describe, reset, delete",
        need="what of them? list, describe, reset or delete",
    )

    listing = add("list", _list, "all groups, with type and state")
    listing.add_argument("--state", action="append", default=[], type=_state, metavar="STATE")
    listing.add_argument("--type", action="append", default=[], choices=("classic", "consumer"))
    listing.add_argument(
        "--json", action="store_true", help="a list of {group_id, type, state, protocol_type}"
    )

    describing = add("describe", _describe, "one group: offsets and lag, or its members")
    completes_groups(describing.add_argument("group", metavar="GROUP"))
    describing.add_argument("--members", action="store_true", help="members and what they have")
    describing.add_argument("--json", action="store_true", help="everything, as one JSON object")

    _add_reset(add("reset", _reset, "say where an inactive group goes on; a plan at first"))

    deleting = add("delete", _delete, "delete inactive groups with their offsets")
    completes_groups(deleting.add_argument("groups", metavar="GROUP", nargs="+"))


def _add_reset(parser: argparse.ArgumentParser) -> None:
    completes_groups(parser.add_argument("group", metavar="GROUP"))
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:P,P]",
        help="a topic, or some partitions of it; may be repeated",
    )
    which.add_argument("--all-topics", action="store_true", help="those with committed offsets")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record there is")
    where.add_argument("--to-latest", action="store_true", help="to the end")
    where.add_argument("--to-current", action="store_true", help="to what is committed, or the end")
    where.add_argument("--to-offset", type=whole(0, LONG_MAX), metavar="N")
    where.add_argument(
        "--shift-by",
        type=whole(-LONG_MAX, LONG_MAX),
        metavar="N",
        help="forward, or back if negative",
    )
    where.add_argument(
        "--to-datetime",
        type=datetime_ms,
        metavar="TIME",
        help="to the first record from then on: 2026-01-31T08:00:00, UTC unless it says +02:00",
    )
    where.add_argument("--by-duration", type=duration_ms, metavar="PnDTnHnMnS", help="so long ago")
    parser.add_argument("--execute", action="store_true", help="do it; else only the plan is shown")


def _state(text: str) -> str:
    """A group's state by its name, whatever the case."""
    from broker.reports.group_report import STATES

    return state(text, STATES)


def _list(options: argparse.Namespace) -> int:
    from broker.cli.groups import group_tool

    return on_cluster(
        options,
        lambda client: group_tool.list_groups(
            client, states=options.state, kinds=options.type, as_json=options.json
        ),
    )


def _describe(options: argparse.Namespace) -> int:
    from broker.cli.groups import group_tool

    return on_cluster(
        options,
        lambda client: group_tool.describe(
            client, options.group, members=options.members, as_json=options.json
        ),
    )


def _reset(options: argparse.Namespace) -> int:
    from broker.cli.groups import group_reset, group_tool

    chosen = None if options.all_topics else group_reset.topics(options.topic)
    return on_cluster(
        options,
        lambda client: group_tool.reset(
            client, options.group, _target(options), chosen, execute=options.execute
        ),
    )


def _target(options: argparse.Namespace) -> "ResetTarget":
    from broker.cli.groups.group_reset import ResetRule, ResetTarget
    from broker.environment import now_ms

    if options.to_offset is not None:
        return ResetTarget(ResetRule.OFFSET, options.to_offset)
    if options.shift_by is not None:
        return ResetTarget(ResetRule.SHIFT, options.shift_by)
    if options.to_datetime is not None:
        return ResetTarget(ResetRule.TIME, options.to_datetime)
    if options.by_duration is not None:
        # Negative times mean something else to ListOffsets: -1 is the end.
        return ResetTarget(ResetRule.TIME, max(0, now_ms() - options.by_duration))
    if options.to_current:
        return ResetTarget(ResetRule.CURRENT)
    return ResetTarget(ResetRule.EARLIEST if options.to_earliest else ResetRule.LATEST)


def _delete(options: argparse.Namespace) -> int:
    from broker.cli.groups import group_tool

    return on_cluster(options, lambda client: group_tool.delete(client, options.groups))
