"""What may be set, and should be known before an agent with these settings is relied upon. Pure.

Nothing here is a mistake: each is right somewhere, behind a proxy that speaks TLS, in a trial, or for a
while in a change. Left out: certificates (`broker.edge.tls_listener`), and rights in the log.
"""

from collections.abc import Sequence
from typing import Final

from broker.config.addresses import is_loopback
from broker.config.kafka_settings import KafkaSettings
from broker.config.listeners import ListenerSettings, SecurityProtocol, exposures

_SENT_AS_THEY_ARE: Final = ("PLAIN", "OAUTHBEARER")
"""Mechanisms by which passwords and tokens themselves are sent."""


def advice(kafka: KafkaSettings, listeners: Sequence[ListenerSettings]) -> list[str]:
    """A sentence for each thing."""
    return [*exposures(listeners), *_readable(listeners), *_rights(kafka, listeners)]


def _readable(listeners: Sequence[ListenerSettings]) -> list[str]:
    """Listeners on which secrets can be read on their way."""
    found = []
    for each in listeners:
        if each.protocol is not SecurityProtocol.SASL_PLAINTEXT or is_loopback(each.host):
            continue
        sent = [mechanism for mechanism in _SENT_AS_THEY_ARE if mechanism in each.mechanisms]
        what = f"takes secrets as they are, by {' and '.join(sent)}," if sent else "takes logins"
        found.append(
            f"listener {each.name} {what} without TLS: whoever is on the way reads what clients"
            " send, and can change it; use SASL_SSL"
        )
    return found


def _rights(kafka: KafkaSettings, listeners: Sequence[ListenerSettings]) -> list[str]:
    """What the authorizer lets pass, or nobody."""
    if not kafka.authorizer_class_name:
        asking = [each.name for each in listeners if each.authenticates]
        if not asking:
            return []
        who = f"whoever logs in ({', '.join(asking)})"
        return [f"{who} may do everything: authorizer.class.name is not set"]
    found = []
    if not kafka.super_users:
        found.append(
            "authorizer.class.name is set and super.users is not: only whom ACLs allow it may change"
            " ACLs, and in a new cluster nobody"
        )
    if "User:ANONYMOUS" in kafka.super_user_principals():
        found.append("super.users has User:ANONYMOUS: whoever does not log in may do everything")
    if kafka.allow_everyone_if_no_acl_found:
        found.append(
            "allow.everyone.if.no.acl.found is true: what has no ACL of its own is open to everybody"
        )
    return found
