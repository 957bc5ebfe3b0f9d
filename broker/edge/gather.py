"""One write for all answers of a turn; big parts are not copied where the loop can gather them."""

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.calls.call import Call
from protocol import apis
from protocol.types import Buffer

HEAVY_BYTES: Final = 256 << 10
"""Who is given more in one turn has it behind the others."""
JOINED_BYTES_MAX: Final = 4 << 10
"""Parts smaller than this are joined: one copy is cheaper than one more entry of a writev."""


def write_gathered(transport: asyncio.Transport, parts: Sequence[Buffer]) -> int:
    """Write the parts in order; returns their size in bytes."""
    size = sum(map(len, parts))
    if size <= JOINED_BYTES_MAX * len(parts):
        transport.write(b"".join(parts))
        return size
    gathered: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < JOINED_BYTES_MAX:
            small.append(part)
            continue
        if small:
            gathered.append(b"".join(small))
            small = []
        gathered.append(part)
    if small:
        gathered.append(b"".join(small))
    transport.writelines(gathered)
    return size


def is_big(call: Call) -> bool:
    """Whether the answer is a big one. Those to Produce never are."""
    if call.api_key == apis.PRODUCE or call.parts is None:
        return False
    return sum(map(len, call.parts)) > HEAVY_BYTES
