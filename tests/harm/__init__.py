"""One hostile or careless client harms nobody else: attackers beside a canary, against a real agent.

| module | what it is |
|---|---|
| `canary` | an honest producer and consumer, 100 records a second, in a process of their own |
| `scene` | one agent, the canary beside it, and what an attack needs; gives a `Verdict` |
| `attacks/` | a file for each kind of harm; an attack is a function on a `Scene`, declared with `@attack` |
| `test_attacks` | every attack, and the canary's bounds |
| `honest/` | the other side: real clients with their defaults, of which none may notice any bound |
| `__main__` | all attacks as one table; with `--checkout DIR` against the agent of another checkout |

Attackers come from 127.0.0.3, the canary from 127.0.0.2: bounds for each address hold one of them
and not the other.
"""
