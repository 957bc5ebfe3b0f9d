"""All attacks as one table: `python -m tests.harm [--checkout DIR] [NAME …]`.

With `--checkout` the agent is the one of another checkout, so that its table says what held before.
Interrupted or terminated, it ends what it started.
"""

import argparse
import asyncio
import signal
import tempfile
from pathlib import Path

from tests.harm import test_attacks
from tests.harm.scene import ATTACKS, Verdict, verdict_of

HEAD = (
    "| attack | bytes sent | canary acks p50 / p99 | reads p99 | longest ping | memory | lost |\n"
    "|---|---|---|---|---|---|---|"
)


def row(name: str, verdict: Verdict) -> str:
    account = verdict.account
    memory = f"{verdict.memory_before >> 20} → {verdict.memory_most >> 20} MiB"
    lost = "; ".join(account.lost) or ("nothing" if verdict.alive else "the agent")
    acks = f"{account.ack_p50} / {account.ack_p99} ms"
    times = f"{acks} | {account.read_p99} ms | {account.longest_ping} ms"
    return f"| {name.replace('_', ' ')} | {verdict.sent:,} | {times} | {memory} | {lost} |"


def main() -> None:
    assert test_attacks.P99_MS_MAX, "it imports all attacks"
    parser = argparse.ArgumentParser(prog="python -m tests.harm")
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("names", nargs="*", help="of attacks; none: all of them")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(ATTACKS):
        parser.error(f"no attack is called {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    # Whoever waits is cancelled then, and ends what it owns. Shells have commands in the background
    # ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    print(HEAD, flush=True)
    for name in arguments.names or ATTACKS:
        with tempfile.TemporaryDirectory() as folder:
            verdict = asyncio.run(
                verdict_of(ATTACKS[name], Path(folder), checkout=arguments.checkout)
            )
        print(row(name, verdict), flush=True)


if __name__ == "__main__":
    main()
