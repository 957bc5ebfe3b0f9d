"""What EtcdClient needs to get in, out of files, and again when they change.

What holds: files are compared by what is in them, since Kubernetes swaps links under them. What
cannot be used (a file that is gone, a certificate with another one's key) changes nothing: that is
logged, once for each reason, and looked at again.

Left out: what becomes of connections (`coordinator.log.etcd_client`).
"""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from coordinator.log.etcd_client import EtcdOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdPaths:
    """Where it is; the settings are called as in the errors. None: there is no such file."""

    password: Path | None = None
    """A line: the user's password."""
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class EtcdFiles:
    """Of one client."""

    def __init__(self, given: EtcdOptions, paths: EtcdPaths) -> None:
        """`given`: what is in no file."""
        self._given = given
        self._paths = paths
        self._options: EtcdOptions | None = None
        self._told = ""

    @property
    def are_there(self) -> bool:
        paths = self._paths
        return any((paths.password, paths.ca, paths.cert, paths.key))

    def read(self) -> EtcdOptions:
        """Raises ValueError with a sentence for the operator."""
        self._options = self._read()
        return self._options

    def look(self) -> EtcdOptions | None:
        """What is in the files now, or None when it is what was there before, or cannot be used.

        Reads from the disk: not for the loop.
        """
        try:
            options = self._read()
            if options == self._options:
                self._told = ""
                return None
            _check(self._paths)
            if self._read() != options:
                return None  # They are being written.
        except ValueError as error:
            self._refuse(str(error))
            return None
        logger.info("etcd's password or certificates have changed and are taken")
        self._options, self._told = options, ""
        return options

    def _refuse(self, reason: str) -> None:
        if reason != self._told:
            logger.error("etcd's password and certificates stay as they were: %s", reason)
        self._told = reason

    def _read(self) -> EtcdOptions:
        given, paths = self._given, self._paths
        password = given.password
        if paths.password is not None:
            password = _password(_bytes("log.password.file", paths.password))
        pem = {"log.ca": paths.ca, "log.cert": paths.cert, "log.key": paths.key}
        ca, cert, key = (None if path is None else _bytes(name, path) for name, path in pem.items())
        return EtcdOptions(
            user=given.user, password=password, tls=given.tls, ca=ca, cert=cert, key=key
        )


def _bytes(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: {path} cannot be read: {error.strerror or error}") from error


def _password(data: bytes) -> str:
    try:
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("log.password.file: the password is not UTF-8") from None
    if not password:
        raise ValueError("log.password.file: there is no password in it")
    return password


def _check(paths: EtcdPaths) -> None:
    """Raises ValueError when OpenSSL does not take the certificates: gRPC would only fail to connect."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if paths.ca is not None:
            context.load_verify_locations(paths.ca)
        if paths.cert is not None and paths.key is not None:
            context.load_cert_chain(paths.cert, paths.key, password="")
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ValueError(f"log.ca, log.cert, log.key: {reason}") from error
