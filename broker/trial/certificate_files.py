"""A folder of certificates: an authority in `ca.pem` and `ca-key.pem`, key stores of agents beside it.

    certificates/ca.pem        whom clients trust
    certificates/ca-key.pem    the authority's key, with its certificate
    certificates/NAME.pem      ssl.keystore.location of an agent: its key, then its certificate

Files are their user's alone (0600), and are put in place at once, whole: an agent that looks at them
meanwhile sees the old one or the new one. What is there is never written over unasked.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.trial import authority
from broker.trial.authority import CertifiedKey, Validity

CA: Final = "ca.pem"
CA_KEY: Final = "ca-key.pem"
CA_NAME: Final = "Frazil trial authority"
CA_DAYS: Final = 3650
DAYS: Final = 365
DAY_MS: Final = 86_400_000

_KEY_END: Final = b"-----END PRIVATE KEY-----\n"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,250}[A-Za-z0-9])?")


class CertificateError(Exception):
    """A file or a name cannot be used; the sentence says why and what to do."""


def write_private(file: Path, data: bytes) -> None:
    """Put a file in place of another one, if there is one. Raises OSError."""
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    number = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(number, "wb") as opened:
        opened.write(data)
    new.replace(file)


def authority_of(folder: Path, now_ms: int) -> CertifiedKey:
    """The authority of a folder, made if it is not there. Raises CertificateError, and OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / CA_KEY
    if not file.exists():
        made = authority.new_authority(CA_NAME, Validity(now_ms, CA_DAYS))
        write_private(file, made.pem)
    found = _read(file)
    if not (folder / CA).exists():
        write_private(folder / CA, found.certificate)
    return found


def create(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    *,
    now_ms: int,
    days: int = DAYS,
    renew: bool = False,
) -> Path:
    """Make the key store of an agent or a client; where it is.

    `hosts`: names and addresses by which clients reach the agent; () for a client. `renew`: in place
    of one that is there. Raises CertificateError, and OSError.
    """
    if not _NAME.fullmatch(name) or f"{name}.pem" in (CA, CA_KEY):
        raise CertificateError(f'"{name}" is not a name: up to 64 of a-z A-Z 0-9 . _ -, and not ca')
    for host in hosts:
        if not _HOST.fullmatch(host) and not _is_address(host):
            raise CertificateError(f'"{host}" is neither the name of a host nor an address')
    file = folder / f"{name}.pem"
    if file.exists() and not renew:
        raise CertificateError(f"{file} is there already; --renew puts a new one in its place")
    own = authority_of(folder, now_ms)
    write_private(file, authority.sign(own, name, hosts, Validity(now_ms, days)).pem)
    return file


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def days_left(file: Path, authority_file: Path, now_ms: int) -> float:
    """Of the certificate in a key store; 0 when it is missing, unreadable or another authority's."""
    try:
        certificate = _read(file).certificate
        if authority.is_signed_by(certificate, authority_file.read_bytes()):
            return (authority.ends_ms(certificate) - now_ms) / DAY_MS
    except (CertificateError, OSError, ValueError):
        pass
    return 0.0


def _read(file: Path) -> CertifiedKey:
    """Raises CertificateError, and OSError."""
    key, end, certificate = file.read_bytes().partition(_KEY_END)
    if not end or b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise CertificateError(
            f"{file} is not what was put there: a key, and a certificate behind it"
        )
    return CertifiedKey(key + end, certificate)
