"""What tests are made of. One page, by what you want to test:

| you test | take | runs in |
|---|---|---|
| a rule, a codec, a table | the function itself; `tests.coordinator.machine.story` for the machine | no loop |
| decisions as a story | texts beside your test; `script.stories` runs them, you declare the words | no loop |
| one group, pure | `tests.broker.groups.pure`: `classic_world`, `consumer_world`, `world_of_either` | no loop |
| something that waits | `async def test_…`: the virtual loop is there (`plugin`, `loop`) | virtual time |
| a coordinator on a log | `tests.coordinator.support.Agent`, with `running(agent)` | virtual time |
| a handler, an API, agents together | the fixture `world`: `async with world.agents("one", "two") as (one, two)` (`agents`) | virtual time |
| bytes of a connection, order, bounds | `one.connect()`, a `Client` without sockets (`client`) | virtual time |
| the hot paths alone | `world` in `tests/broker/produce` and `tests/broker/fetch`: `agent.produce`, `agent.fetch` | virtual time |
| groups, transactions | `tests.broker.groups.world.agents`, `tests.broker.transactions.world.Producer` | virtual time |
| what is done away from the loop | `threads.Threads` | virtual time |
| jobs | `tests.broker.jobs.world`: a machine, a store, and the jobs themselves | no loop |
| an agent's life, admin HTTP, tools | `sockets.agent_of(Place())`, marked `real_loop` | real time |
| whole clusters under faults | `tests/sim`, from seeds | virtual time |

An API is called with neutral shapes: `await one.call(apis.METADATA, MetadataRequest())`, or on a
connection of its own `await client.call(api_key, version, request)`; both give the response. Shapes
that many tests send are made from plain values by `requests`.

What goes wrong is a gate in front of a port (`faults`): `one.log.before["append"] = lost()`,
`one.log.after["append"] = lost()` (it arrived, the answer did not), `one.log.down = True`,
`one.lag()`, `world.store.before["put_new"] = held(event)`.

What holds: agents are put together by the product (`broker.composition`), never by a test. Time is
the loop's, chance is a seed's, so a test that fails fails again: `@pytest.mark.parametrize("seed",
range(20))` tries twenty schedules, `@pytest.mark.schedules(5)` five within one test. An error that
nobody caught fails the test. mypy checks this package as it checks the product.
"""
