"""Whether a machine's metadata service, the last that AWS's tools ask for credentials, is silent.

They do not tell "there are none" from "nobody answered", which passes on a machine that has just started.
So where they have found none, the service is asked once more, and only whether it answers counts.
"""

import asyncio
import os
from typing import Final
from urllib.parse import urlsplit

from aiobotocore.session import AioSession
from botocore.utils import METADATA_BASE_URL, METADATA_BASE_URL_IPv6, resolve_imds_endpoint_mode

ANSWER_SECONDS_MAX: Final = 2.0
PATH: Final = "/latest/meta-data/iam/security-credentials/"
_DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
_STATUS_PLACE: Final = 1
"""Of the words of a status line."""
_FAILED: Final = 500


async def silent_service(session: AioSession) -> str | None:
    """The address of the service if it does not answer; None when it does, even "no", or is nobody's business."""
    if os.environ.get(_DISABLED, "").lower() == "true":
        return None
    url = session.get_config_variable("ec2_metadata_service_endpoint")
    if not url:
        is_ipv6 = resolve_imds_endpoint_mode(session) == "ipv6"
        url = METADATA_BASE_URL_IPv6 if is_ipv6 else METADATA_BASE_URL
    parts = urlsplit(str(url))
    if parts.hostname is None:
        return None
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            status = await _status(parts.hostname, parts.port or 80)
    except (OSError, EOFError):
        status = _FAILED
    return str(url) if status >= _FAILED else None


async def _status(host: str, port: int) -> int:
    """Of its answer. Raises OSError, EOFError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        words = (await reader.readline()).split()
        if len(words) <= _STATUS_PLACE or not words[_STATUS_PLACE].isdigit():
            raise EOFError
        return int(words[_STATUS_PLACE])
    finally:
        writer.close()
