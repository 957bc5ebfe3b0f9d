"""The arguments of `frazil quota`.

What a command needs is imported when it is called.
"""

import argparse
import math
from typing import Any

from broker.cli.arguments import FailedError, checked, cluster_tool, on_cluster


def add_quota(commands: Any) -> None:
    """`frazil quota`, with its commands."""
    text = "quotas of users, client ids and addresses: describe, alter"
    add = cluster_tool(commands, "quota", text, need="what of them? describe or alter")
    describing = add("describe", _describe, "all quotas, or those of one entity")
    _add_entity(describing)
    describing.add_argument("--json", action="store_true", help="a list of {entity, quotas}")
    altering = add("alter", _alter, "set or take away quotas of one entity")
    _add_entity(altering)
    altering.add_argument(
        "--set",
        type=checked(_quota),
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate,"
        " connection_creation_rate; may be repeated",
    )
    altering.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="may be repeated"
    )
    altering.add_argument("--dry-run", action="store_true", help="only say whether it could be")


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for kind, text in (("user", "USER"), ("client-id", "ID"), ("ip", "ADDRESS")):
        which = parser.add_mutually_exclusive_group()
        which.add_argument(f"--{kind}", metavar=text)
        which.add_argument(
            f"--{kind}-default", action="store_true", help="of all that have none of their own"
        )


def _quota(text: str) -> tuple[str, float]:
    """Raises ValueError with a sentence."""
    name, equals, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (name and equals and math.isfinite(value)):
        raise ValueError(
            f'"{text}" is no quota with its number (example: producer_byte_rate=1048576)'
        )
    return name, value


def _entity(options: argparse.Namespace) -> dict[str, str | None]:
    from broker.cli.cluster.quota_tool import CLIENT_ID, IP, USER

    said = (
        (USER, options.user, options.user_default),
        (CLIENT_ID, options.client_id, options.client_id_default),
        (IP, options.ip, options.ip_default),
    )
    return {kind: name for kind, name, is_default in said if name is not None or is_default}


def _describe(options: argparse.Namespace) -> int:
    from broker.cli.cluster import quota_tool

    entity = _entity(options)
    return on_cluster(
        options, lambda client: quota_tool.describe(client, entity, as_json=options.json)
    )


def _alter(options: argparse.Namespace) -> int:
    from broker.cli.cluster import quota_tool

    entity, setting = _entity(options), dict(options.set)
    if not entity:
        raise FailedError("whose? --user, --client-id or --ip, or --user-default, ...")
    if not (setting or options.unset):
        raise FailedError("what of them? --set or --unset")
    return on_cluster(
        options,
        lambda client: quota_tool.alter(
            client, entity, setting=setting, unsetting=options.unset, dry_run=options.dry_run
        ),
    )
