"""The process that reads schemas: `python -m broker.registry`, started by an agent and by nobody else.

Standard input is a socket whose other end the agent has; questions come through it, and answers go
back. The process ends when that does. It gives way to whatever else wants the processor, has at most
so much memory, is the first to go when the machine is out of it, and is ended by the system when it
computes on after its agent was killed.
"""

import contextlib
import os
import resource
import signal
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Final

from broker.registry.check_frames import LENGTH, decode_question, encode_answer
from broker.registry.checks import TOO_MUCH, Answer, Question, SchemaChecks

NICE: Final = 10
OOM_SCORE: Final = 500
"""Added to the share of memory, in thousandths, by which Linux chooses whom to kill."""
MEMORY_BYTES: Final = 384 << 20
"""Address space beyond what the process begins with."""
COMPUTE_S_MAX: Final = 20
"""For one question. The agent ends the process long before, if there is one."""


def main() -> int:
    """Answer until the agent is gone; the exit code."""
    try:
        connection = socket.socket(fileno=os.dup(0))
        connection.getpeername()
    except OSError:
        sys.stderr.write("this is started by an agent, not by hand\n")
        return 2
    warnings.simplefilter("ignore")  # About expressions in schemas.
    _give_way()
    _bound_memory()
    checks = SchemaChecks()
    try:
        connection.sendall(encode_answer(Answer()))
        while True:
            (length,) = LENGTH.unpack(_received(connection, LENGTH.size))
            question = decode_question(_received(connection, length))
            _bound_time()
            connection.sendall(encode_answer(_answer(checks, question)))
    except (EOFError, OSError):
        return 0


def _answer(checks: SchemaChecks, question: Question) -> Answer:
    try:
        return checks.answer(question)
    except MemoryError:
        checks.forget()
    # Out here nothing of the first attempt is held any more.
    try:
        return checks.answer(question)
    except MemoryError:
        checks.forget()
        return Answer(error=TOO_MUCH)


def _received(connection: socket.socket, length: int) -> bytes:
    """Raises EOFError when the agent is gone."""
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _give_way() -> None:
    # Ctrl-C reaches all processes of a terminal, and SIGTERM all of a service: what ends this one is
    # its agent, by closing the socket.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{OOM_SCORE}\n")


def _bound_memory() -> None:
    """Where the system tells how much it has; elsewhere only time is bounded."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        allowed = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_time() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + COMPUTE_S_MAX, most))


if __name__ == "__main__":
    sys.exit(main())
