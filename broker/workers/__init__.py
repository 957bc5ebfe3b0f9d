"""Several agents on one machine: `frazil serve --workers N`, a process a core behind one supervisor.

Each worker is an agent in its own right, with a node id, a session and ports of its own; what they share
are the ports of the settings, at which any of them answers, and what is told over HTTP. `seats` says how
they differ, `supervision` what becomes of one that ended, `joined_metrics` and `joined_readiness` what they
say together; `messages` is what passes between supervisor and worker. Shells: `supervisor`, `life` (one
process of a worker, as the supervisor sees it), `orphans` (what dead workers leave), `link` (the
supervisor, as a worker sees it), `__main__`.

A supervisor serves nobody: it opens no port, reads no certificate, knows neither store nor log, and
so has little to die of. Called by the command line; `__main__` is what the supervisor starts.
"""
