"""The arguments of `frazil cluster` and `frazil config`.

What a command needs is imported when it is called.
"""

import argparse
from typing import TYPE_CHECKING, Any, Final

from broker.cli.arguments import FailedError, cluster_tool, on_cluster
from broker.cli.completion import completes_groups, completes_topics
from broker.cli.topics.arguments import add_alterations, alterations_of

if TYPE_CHECKING:
    from broker.cli.cluster.config_tool import Resource

ALL: Final = ""
"""No name: all brokers."""


def add_cluster_commands(commands: Any) -> None:
    """`frazil cluster`, with its command."""
    add = cluster_tool(commands, "cluster", "the cluster: describe", need="what of it? describe")
    describing = add("describe", _describe_cluster, "its id, and its brokers")
    shape = "{cluster_id, controller, brokers: [{id, host, port, rack}]}"
    describing.add_argument("--json", action="store_true", help=shape)


def add_config(commands: Any) -> None:
    """`frazil config`, with its commands; what has configs is named as kafka-configs.sh names it."""
    text = "configs of topics, brokers, groups, loggers and metrics' subscriptions: describe, alter"
    add = cluster_tool(commands, "config", text, need="what of them? describe or alter")
    describing = add("describe", _describe_config, "those that are no defaults")
    _add_resource(describing)
    describing.add_argument("--all", action="store_true", help="defaults, too")
    describing.add_argument("--json", action="store_true", help="a list of {name, value, source}")
    altering = add("alter", _alter_config, "change configs, all that are named or none")
    _add_resource(altering)
    add_alterations(altering)


def _add_resource(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    completes_topics(which.add_argument("--topic", metavar="TOPIC"))
    which.add_argument("--broker", metavar="ID")
    which.add_argument(
        "--all-brokers", action="store_const", const=ALL, dest="all_brokers", help="together"
    )
    which.add_argument("--broker-logger", metavar="ID", help="levels of a broker's loggers")
    completes_groups(which.add_argument("--group", metavar="GROUP"))
    which.add_argument(
        "--client-metrics", metavar="NAME", help="a subscription to clients' metrics"
    )


def _resource(options: argparse.Namespace) -> "Resource":
    """Raises FailedError."""
    from broker.cli.cluster.config_tool import ResourceKind, resource
    from broker.cli.command_result import ToolError

    named = {
        ResourceKind.TOPIC: options.topic,
        ResourceKind.BROKER: options.all_brokers if options.broker is None else options.broker,
        ResourceKind.BROKER_LOGGER: options.broker_logger,
        ResourceKind.GROUP: options.group,
        ResourceKind.CLIENT_METRICS: options.client_metrics,
    }
    ((kind, name),) = [(kind, name) for kind, name in named.items() if name is not None]
    try:
        return resource(kind, name)
    except ToolError as error:
        raise FailedError(str(error)) from error


def _describe_cluster(options: argparse.Namespace) -> int:
    from broker.cli.cluster import cluster_tool as tool

    return on_cluster(options, lambda client: tool.describe(client, as_json=options.json))


def _describe_config(options: argparse.Namespace) -> int:
    from broker.cli.cluster import config_tool

    about = _resource(options)
    return on_cluster(
        options,
        lambda client: config_tool.describe(client, about, every=options.all, as_json=options.json),
    )


def _alter_config(options: argparse.Namespace) -> int:
    from broker.cli.cluster import config_tool

    about, alterations = _resource(options), alterations_of(options)
    return on_cluster(
        options,
        lambda client: config_tool.alter(client, about, alterations, dry_run=options.dry_run),
    )
