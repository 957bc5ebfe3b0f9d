"""A client's settings as librdkafka has them: Kafka's names where it has its own. Pure.

Left out: tokens (`broker.client.bearer_tokens`), which librdkafka asks for by a call.
"""

from typing import Any

from broker.client.client_settings import ClientSettings
from broker.client.token_settings import BearerLogin
from broker.edge.key_stores import Material
from broker.sasl.bearer_messages import OAUTHBEARER


def librdkafka_settings(
    bootstrap: str, settings: ClientSettings, material: Material | None
) -> dict[str, Any]:
    """Returns what it takes to reach a cluster. `material`: what `ssl.*` name, None without TLS."""
    has_login = settings.login is not None
    found: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": _PROTOCOLS[material is not None, has_login],
    }
    if material is not None and settings.tls is not None:
        found |= _tls(material, checks_names=settings.tls.checks_names)
        if settings.tls.cipher_suites:
            found["ssl.cipher.suites"] = ":".join(settings.tls.cipher_suites)
    if isinstance(settings.login, BearerLogin):
        found["sasl.mechanism"] = OAUTHBEARER
    elif settings.login is not None:
        found["sasl.mechanism"] = settings.login.mechanism
        found["sasl.username"] = settings.login.user
        found["sasl.password"] = settings.login.password
    return found


_PROTOCOLS = {
    (False, False): "plaintext",
    (True, False): "ssl",
    (False, True): "sasl_plaintext",
    (True, True): "sasl_ssl",
}
"""By whether there is TLS, and a login."""


def _tls(material: Material, *, checks_names: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ssl.endpoint.identification.algorithm": "https" if checks_names else "none"
    }
    if material.trusted:
        found["ssl.ca.pem"] = material.trusted
    else:
        # Whomever the system trusts, wherever it says so.
        found["ssl.ca.location"] = "probe"
    if material.key:
        found["ssl.key.pem"] = material.key.decode()
        found["ssl.certificate.pem"] = material.chain.decode()
    return found
