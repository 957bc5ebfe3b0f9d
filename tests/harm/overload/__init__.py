"""More load than an agent can bear, from honest clients: `python -m tests.harm.overload`.

| module | what it is |
|---|---|
| `clients` | connections of the load: prebuilt requests out, answers in, and an account of both |
| `load` | thousands of clients in one process that offers so many requests a second, answered or not |
| `steps` | an agent, the load, a canary and probes of health: finds what the agent can bear, goes beyond |
| `told` | what was seen, as a table and as a plot (docs/overload.svg) |
| `test_overload` | a small one: nothing fails, health says why, and all is as before within 10 s |

The agent has one core; the load, the canary and the agent's servers share another. The load comes
from 127.0.1.1 and on, an address for each five hundred connections or one for all; the canary from
127.0.0.2.
"""
