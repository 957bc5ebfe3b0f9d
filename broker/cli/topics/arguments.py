"""The arguments of `frazil topic`; its flags are those of kafka-topics.sh and rpk where both agree.

What a command needs is imported when it is called. `JSON_*` are the shapes of `--json`: promises to programs.
"""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from broker.cli.arguments import (
    AGENT_DEFAULT,
    INT_MAX,
    LONG_MAX,
    add_agent,
    add_yes,
    cluster_tool,
    confirm,
    datetime_ms,
    named_value,
    on_agent,
    on_cluster,
    place_of,
    whole,
)
from broker.cli.completion import completes_topics

if TYPE_CHECKING:
    from broker.cli.topics.topic_tool import Alteration
    from broker.cli.topics.trim_tool import TrimTarget

REPLICATION_FACTOR_MAX: Final = (1 << 15) - 1

JSON_LIST: Final = "a list of {name, topic_id, partition_count, replication_factor, is_internal}"
JSON_CREATE: Final = (
    "a list of {name, status, topic_id, partition_count, replication_factor, error}; status: created,"
    " exists, valid (of a dry run), refused or unknown (no answer came in time)"
)
JSON_DESCRIBE: Final = (
    "a list of {name, topic_id, is_internal, partitions: [{partition, leader, replicas, isr,"
    " first_offset, next_offset}], configs: [{name, value, source}]}; with --storage one object"
)


def add_topic(commands: Any) -> None:
    """`frazil topic`, with its commands."""
    names = "list, create, describe, alter, delete, add-partitions"
    add = cluster_tool(
        commands, "topic", f"topics: {names}, trim", need=f"what of them? {names} or trim"
    )
    listing = add("list", _list, "all topics, with their partitions and replicas")
    listing.add_argument("--internal", action="store_true", help="also those of the cluster itself")
    listing.add_argument("--json", action="store_true", help=JSON_LIST)

    _add_create(add("create", _create, "create topics"))

    describing = add("describe", _describe, "partitions, offsets, and configs that are no defaults")
    _add_topics(describing)
    describing.add_argument("--json", action="store_true", help=JSON_DESCRIBE)
    describing.add_argument(
        "--storage",
        action="store_true",
        help="where one topic's records lie instead, as an agent's admin listener tells: offsets,"
        " bytes in chunks and segments, rows, pages",
    )
    add_agent(describing)
    describing.set_defaults(agent=None)

    altering = add("alter", _alter, "change configs of topics")
    _add_topics(altering)
    add_alterations(altering)

    deleting = add("delete", _delete, "delete topics with all their records")
    _add_topics(deleting)
    deleting.add_argument("--if-exists", action="store_true", help="be content when there is none")
    add_yes(deleting)

    text = "give topics more partitions; keys go to other partitions from then on"
    widening = add("add-partitions", _add_partitions, text)
    _add_topics(widening)
    how_many = widening.add_mutually_exclusive_group(required=True)
    how_many.add_argument("--to", type=whole(1, INT_MAX), metavar="N", help="so many in all")
    how_many.add_argument("--by", type=whole(1, INT_MAX), metavar="N", help="so many more")
    _add_dry_run(widening)

    _add_trim(add("trim", _trim, "delete the oldest records of a topic"))


def _add_topics(parser: argparse.ArgumentParser) -> None:
    completes_topics(parser.add_argument("topics", metavar="TOPIC", nargs="+"))


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say whether it could be")


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--partitions",
        type=whole(1, INT_MAX),
        default=-1,
        metavar="N",
        help="(the cluster's num.partitions)",
    )
    parser.add_argument(
        "--replication-factor",
        type=whole(1, REPLICATION_FACTOR_MAX),
        default=-1,
        metavar="N",
        help="(the cluster's default.replication.factor; means nothing to Frazil)",
    )
    _add_pairs(parser, "--config", "a config of the topics")
    parser.add_argument(
        "--if-not-exists", action="store_true", help="take one that is there as it is"
    )
    _add_dry_run(parser)
    parser.add_argument("--json", action="store_true", help=JSON_CREATE)


def add_alterations(parser: argparse.ArgumentParser) -> None:
    """What is to be done with configs, and whether it is only tried."""
    _add_pairs(parser, "--set", "a config")
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="back to its default; may be repeated",
    )
    _add_pairs(parser, "--append", "values added to a list")
    _add_pairs(parser, "--subtract", "values taken from a list")
    _add_dry_run(parser)


def _add_pairs(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    parser.add_argument(
        flag,
        action="append",
        default=[],
        type=named_value("retention.ms=86400000"),
        metavar="NAME=VALUE",
        help=f"{text}; may be repeated",
    )


def _add_trim(parser: argparse.ArgumentParser) -> None:
    text = "a topic, or some partitions of it"
    completes_topics(parser.add_argument("topic", metavar="TOPIC[:P,P]", help=text))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--before-offset",
        type=whole(0, LONG_MAX),
        metavar="N",
        help="what comes before that offset",
    )
    where.add_argument(
        "--before-datetime",
        type=datetime_ms,
        metavar="TIME",
        help="what comes before the first record from then on: 2026-01-31T08:00:00, UTC unless it"
        " says +02:00",
    )
    where.add_argument("--all", action="store_true", help="all records there are")
    add_yes(parser)


def _list(options: argparse.Namespace) -> int:
    from broker.cli.topics import topic_tool

    return on_cluster(
        options,
        lambda client: topic_tool.list_topics(
            client, internal=options.internal, as_json=options.json
        ),
    )


def _create(options: argparse.Namespace) -> int:
    from broker.cli.topics import topic_tool

    like = topic_tool.NewTopic(options.partitions, options.replication_factor, options.config)
    return on_cluster(
        options,
        lambda client: topic_tool.create(
            client,
            options.topics,
            like,
            if_not_exists=options.if_not_exists,
            dry_run=options.dry_run,
            as_json=options.json,
        ),
    )


def _describe(options: argparse.Namespace) -> int:
    if options.storage:
        return _describe_storage(options)
    if (options.agent, options.token_file, options.ca_file, options.cert_file) != (None,) * 4:
        raise ValueError("an agent's admin listener is asked with --storage only")
    from broker.cli.topics import topic_tool

    return on_cluster(
        options,
        lambda client: topic_tool.describe(client, options.topics, as_json=options.json),
    )


def _describe_storage(options: argparse.Namespace) -> int:
    from broker.cli.topics import storage_tool

    if (options.bootstrap, options.command_config) != (None, None):
        raise ValueError("--storage asks an agent's admin listener: say where it is with --agent")
    if len(options.topics) > 1:
        raise ValueError("--storage is told of one topic at a time")
    (topic,) = options.topics
    options.agent = options.agent or AGENT_DEFAULT
    return on_agent(
        options, lambda: storage_tool.describe(place_of(options), topic, as_json=options.json)
    )


def _alter(options: argparse.Namespace) -> int:
    from broker.cli.topics import topic_tool

    alterations = alterations_of(options)
    return on_cluster(
        options,
        lambda client: topic_tool.alter(
            client, options.topics, alterations, dry_run=options.dry_run
        ),
    )


def alterations_of(options: argparse.Namespace) -> "list[Alteration]":
    """Raises ValueError when there is none."""
    from broker.cli.topics.requests import APPEND, DELETE, SET, SUBTRACT
    from broker.cli.topics.topic_tool import Alteration

    found = [
        *[Alteration(SET, *each) for each in options.set],
        *[Alteration(DELETE, name) for name in options.unset],
        *[Alteration(APPEND, *each) for each in options.append],
        *[Alteration(SUBTRACT, *each) for each in options.subtract],
    ]
    if not found:
        raise ValueError("what of them? --set, --unset, --append or --subtract")
    return found


def _delete(options: argparse.Namespace) -> int:
    from broker.cli.topics import topic_tool

    names = list(dict.fromkeys(options.topics))
    noun = "topic" if len(names) == 1 else "topics"
    records = "its" if len(names) == 1 else "their"
    confirm(options, f"delete {noun} {', '.join(names)} with all {records} records?")
    return on_cluster(
        options,
        lambda client: topic_tool.delete(client, names, if_exists=options.if_exists),
    )


def _add_partitions(options: argparse.Namespace) -> int:
    from broker.cli.topics import topic_tool

    return on_cluster(
        options,
        lambda client: topic_tool.add_partitions(
            client, options.topics, to=options.to, by=options.by, dry_run=options.dry_run
        ),
    )


def _trim(options: argparse.Namespace) -> int:
    from broker.cli.groups import group_reset
    from broker.cli.topics import trim_tool

    ((name, partitions),) = group_reset.topics([options.topic]).items()
    which, target = _target(options)
    confirm(options, f"delete {which} of {options.topic}?")
    return on_cluster(options, lambda client: trim_tool.trim(client, name, partitions, target))


def _target(options: argparse.Namespace) -> "tuple[str, TrimTarget]":
    """What is to be deleted, in words, too."""
    from broker.cli.topics.trim_tool import TrimRule, TrimTarget

    if options.before_offset is not None:
        which = f"the records before offset {options.before_offset}"
        return which, TrimTarget(TrimRule.OFFSET, options.before_offset)
    if options.before_datetime is not None:
        time = datetime.fromtimestamp(options.before_datetime / 1000, UTC).isoformat()
        return f"the records before {time}", TrimTarget(TrimRule.TIME, options.before_datetime)
    return "all records", TrimTarget(TrimRule.ALL)
