"""Fuzzing: whatever arrives, nobody else is harmed by it. One page.

| module | what it is |
|---|---|
| `target` | a target makes inputs (bytes), changes them, and runs one |
| `targets/` | frames, whole agents, logins, tokens, TLS, batches, HTTP, metrics, schemas, values by them, the log's codec and machine, snapshots, objects |
| `grammar`, `batches`, `schema_texts` | inputs that are mostly well-formed, and so get far |
| `mutation` | bytes changed as parsers dislike it |
| `campaign` | the loop: what leads to something new is changed on; why it is ours |
| `verdict` | what is a finding: errors, the log, a loop that stands still, memory |
| `minimise`, `corpus` | what is found is made small and becomes a file |
| `processes`, `__main__` | all cores, counts, and `python -m tests.fuzz FILE` to run kept inputs again |

`make fuzz MINUTES=n` looks for more; `make test` runs what is in `corpus/<target>/` again (what was wrong
once), and a few inputs of fixed seeds. An input is bytes and all that its outcome hangs on, so a file is
enough to see a finding again: an agent that is sent requests is a new one for every stream of them.

A new target is a class in `targets/`: it catches the errors that its parser may raise, and no others, returns
in few words what came of the input, and raises `WrongError` for what must never be. Show that it finds a
planted bug (`test_fuzzer.py`).
"""
