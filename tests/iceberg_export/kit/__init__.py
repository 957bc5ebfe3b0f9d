"""What tests of the exporter are made of. One page, by what you want to test:

| you test | take |
|---|---|
| an export, its table, who meddles with it | the fixture `here`, a `Place` (`place`) |
| the command line, the loop, Spark, a process | `World` behind `served(world)`, jobs by `make_job` (`world`, `http`) |
| keys and values with schemas | `FakeRegistry` behind `served(registry)`, `avro`, `framed` (`registry`) |
| what goes wrong at a step | `Once` and `Answers` as a job's hook (`hooks`), runners of `tasks` |
| what other programs do to a table | `strangers` |
| drivers that are killed | `drivers` |
| whatever may happen, in any order | a life (`life`) of a topic and its table |
| a catalog that is not PyIceberg's own SQLite | `catalogs`, and the fixtures of servers in `conftest.py` |
| an export from a real agent | `agent_job` (`agents`) |

A `Place` has one topic, `orders`, its log as lists in memory, chunks as files in a folder, and
a catalog; each export is a run of its own. The log says what the table must hold
(`here.wanted()`), and `here.verify()` asks the product's own proof.
"""
