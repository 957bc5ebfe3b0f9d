"""The arguments of `frazil acl`; its flags are those of kafka-acls.sh."""

import argparse
from typing import TYPE_CHECKING, Any

from broker.cli.arguments import checked, cluster_tool, on_cluster

if TYPE_CHECKING:
    from broker.cli.acl_tool import AclsWanted, ResourcePattern
    from protocol.acls import Operation


def add_acl(commands: Any) -> None:
    """`frazil acl`, with its commands."""
    add = cluster_tool(
        commands,
        "acl",
        "who may do what: list, add, remove",
        need="what of them? list, add or remove",
    )
    listing = add("list", _list, "all ACLs, or those about some resources")
    _add_resources(listing)
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    for name, run, text in (
        ("add", _add, "allow or deny; in force on every agent when it ends"),
        ("remove", _remove, "take ACLs away"),
    ):
        parser = add(name, run, text)
        _add_resources(parser)
        for permission in ("allow", "deny"):
            parser.add_argument(
                f"--{permission}-principal",
                action="append",
                default=[],
                metavar="TYPE:NAME",
                help="User:alice; User:* is everybody; may be repeated",
            )
        parser.add_argument(
            "--host", action="append", default=[], metavar="ADDRESS", help="(any); may be repeated"
        )
        parser.add_argument(
            "--operation",
            action="append",
            default=[],
            type=_operation,
            metavar="OPERATION",
            help="Read, Write, …, All (All); may be repeated",
        )


def _add_resources(parser: argparse.ArgumentParser) -> None:
    for flag in ("--topic", "--group", "--transactional-id"):
        parser.add_argument(
            flag, action="append", default=[], metavar="NAME", help='"*": all; may be repeated'
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--resource-pattern-type",
        choices=("literal", "prefixed"),
        default="literal",
        help="what NAMEs are (literal)",
    )


def _patterns(options: argparse.Namespace) -> "list[ResourcePattern]":
    from broker.cli.acl_tool import ResourcePattern
    from protocol.acls import CLUSTER_NAME, PatternType, ResourceType

    pattern_type = PatternType[options.resource_pattern_type.upper()]
    named = (
        (ResourceType.TOPIC, options.topic),
        (ResourceType.GROUP, options.group),
        (ResourceType.TRANSACTIONAL_ID, options.transactional_id),
    )
    found = [ResourcePattern(kind, name, pattern_type) for kind, some in named for name in some]
    if options.cluster:
        found.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def _wanted(options: argparse.Namespace) -> "AclsWanted":
    from broker.cli.acl_tool import AclsWanted
    from protocol.acls import Permission

    principals = [(Permission.ALLOW, each) for each in options.allow_principal]
    principals += [(Permission.DENY, each) for each in options.deny_principal]
    return AclsWanted(_patterns(options), principals, options.host, options.operation)


def _list(options: argparse.Namespace) -> int:
    from broker.cli import acl_tool

    patterns = _patterns(options)
    return on_cluster(
        options, lambda client: acl_tool.list_acls(client, patterns, as_json=options.json)
    )


def _add(options: argparse.Namespace) -> int:
    from broker.cli import acl_tool

    bindings = _wanted(options).bindings()
    return on_cluster(options, lambda client: acl_tool.add(client, bindings))


def _remove(options: argparse.Namespace) -> int:
    from broker.cli import acl_tool

    bindings = _wanted(options).bindings()
    return on_cluster(options, lambda client: acl_tool.remove(client, bindings))


def _operation(text: str) -> "Operation":
    from broker.cli.acl_tool import operation

    return checked(operation)(text)
