"""A context of OpenSSL gets its versions, its key and whom it trusts; of listeners as of clients.

Left out: what else a context is told (`broker.edge.tls_listener`, `broker.client.client_tls`).
"""

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from broker.edge.key_stores import Material, TlsError
from broker.edge.tls import versions_of

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def equip(
    context: ssl.SSLContext,
    material: Material,
    *,
    protocols: Sequence[str],
    cipher_suites: Sequence[str],
) -> None:
    """`protocols` and `cipher_suites` as in Kafka's settings. Raises TlsError."""
    try:
        versions = versions_of(protocols, cipher_suites)
        context.minimum_version = _VERSIONS[versions.oldest]
        context.maximum_version = _VERSIONS[versions.newest]
        if versions.ciphers:
            context.set_ciphers(versions.ciphers)
        if material.key:
            with _in_memory(material.key + material.chain) as path:
                context.load_cert_chain(path, password="")
        if material.trusted:
            context.load_verify_locations(cadata=material.trusted)
            # Java trusts whatever is in a truststore, not only certificates that sign themselves.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    except (ValueError, ssl.SSLError, OSError) as error:
        raise TlsError(f"OpenSSL does not take the certificate or the suites: {error}") from error


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A file that OpenSSL can read and nobody else sees, for as long as that takes."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("certificate")
        try:
            os.write(number, data)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile() as file:  # Its owner's alone (0600).
        file.write(data)
        file.flush()
        yield file.name
