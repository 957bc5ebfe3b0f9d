"""Completion in shells of what follows `frazil export`: commands, flags, and names of topics as agents tell them.

argcomplete walks the parser; the shell has called `frazil`, which became this process. An agent that does not answer
within a second completes nothing, and nothing is said: nobody has asked it to do anything.
"""

import argparse
import os
from typing import Final

from iceberg_export.errors import AgentError, ExportError

TIMEOUT_MS: Final = 1000
_ASKED: Final = "_ARGCOMPLETE"


def answer(parser: argparse.ArgumentParser) -> None:
    """Ends the process when it is a shell that asks."""
    if _ASKED in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


def completes_topics(action: argparse.Action) -> None:
    """An argument is the name of a topic."""
    # argcomplete looks for it there.
    vars(action)["completer"] = lambda parsed_args, **_: _topics(parsed_args)


def _topics(arguments: argparse.Namespace) -> list[str]:
    """None when they cannot be had."""
    from iceberg_export.cli.given_settings import settings_of
    from iceberg_export.plan.agent_client import AgentClient
    from iceberg_export.tls_files import AGENT, TlsFiles

    try:
        settings = settings_of(arguments)
        client = AgentClient(
            settings.agents,
            timeout_ms=TIMEOUT_MS,
            sleep=_give_up,
            token=settings.agent_token,
            context=TlsFiles(settings.values, AGENT).context,
        )
        return [topic.name for topic in client.topics().topics]
    except ExportError:
        return []


def _give_up(_seconds: float) -> None:
    """Instead of waiting for another round."""
    raise AgentError("no agent answers")
