"""How many bytes of a connection have arrived in the kernel and were not read yet."""

import fcntl
import struct
import termios
from asyncio import Transport


def unread_bytes(transport: Transport) -> int:
    """0 when it cannot be known: there is no socket, or none any more.

    A transport without a socket may have the number as the extra info "unread_bytes".
    """
    unread = transport.get_extra_info("unread_bytes")
    if unread is not None:
        return int(unread)
    socket = transport.get_extra_info("socket")
    number = -1 if socket is None else socket.fileno()
    if number < 0:
        return 0
    (count,) = struct.unpack("i", fcntl.ioctl(number, termios.FIONREAD, bytes(4)))
    return int(count)
