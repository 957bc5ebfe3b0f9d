"""A worker of `frazil serve` as a process: `python -m broker.workers`, started by a supervisor and by nobody else.

Standard input is one end of a socket whose other end the supervisor has; what the worker is comes through
it. Exit codes: 0 it has left; 1 it cannot go on, and the supervisor was told why.
"""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from broker import process
from broker.agent import AgentError
from broker.config.settings import load
from broker.config.values import SettingsError
from broker.environment import software_version
from broker.workers.link import Link
from broker.workers.messages import MessageError
from broker.workers.seats import Seat, own_ports, settings_of
from protocol.fault_codes import told

LEFT, FAILED, MISUSED = 0, 1, 2


def main() -> int:
    """Be a worker until it has left; the exit code."""
    # They reach all processes of a terminal, or of a service: the supervisor says what follows.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        connection = socket.socket(fileno=os.dup(0))
        connection.getpeername()
    except OSError:
        sys.stderr.write("this is started by `frazil serve --workers`, not by hand\n")
        return MISUSED
    link = Link(connection)
    try:
        return _run(link, link.hello())
    except (AgentError, ValueError, SettingsError) as error:
        link.refused(told(error))
    except MessageError as error:
        sys.stderr.write(f"{error}\n")
    finally:
        link.close()
    return FAILED


def _run(link: Link, hello: Mapping[str, Any]) -> int:
    if hello["version"] != software_version():
        raise AgentError(
            f"the supervisor is version {hello['version']}, and what is installed is now"
            f" {software_version()}: restart frazil serve"
        )
    seat = Seat.of_json(hello["seat"])
    loaded = load(**hello["texts"], environ=os.environ)
    settings = loaded.settings
    return process.run(
        # What has no effect the supervisor has told.
        loaded._replace(settings=settings_of(settings, seat), warnings=()),
        announce=lambda agent: link.serving(agent.listening()),
        one_of=process.OneOfSeveral(seat.name, own_ports(settings, seat.number), link.run),
    )


if __name__ == "__main__":
    sys.exit(main())
