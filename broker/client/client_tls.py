"""A client's context of OpenSSL, from its settings and their files.

Left out: connections (`broker.cli.kafka_client`), and what their errors mean (`broker.client.tls_failures`).
"""

import ssl
from pathlib import Path

from broker.client.tls_settings import ClientTls
from broker.edge import tls_context
from broker.edge.key_stores import client_material_of


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """What OpenSSL needs for connections to a cluster. Raises TlsError."""
    material = client_material_of(settings.keystore, settings.truststore, _read)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_names
    tls_context.equip(
        context, material, protocols=settings.protocols, cipher_suites=settings.cipher_suites
    )
    if not material.trusted:
        context.load_default_certs()
    return context


def _read(location: str) -> bytes:
    return Path(location).read_bytes()
