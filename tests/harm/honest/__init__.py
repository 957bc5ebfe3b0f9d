"""No honest client is hit by a default: real clients with their own defaults, a plain `frazil dev`.

| module | what it is |
|---|---|
| `kit` | an agent, a program beside it, and that nobody was refused or cut off |
| `librdkafka`, `programs/` | the story of thousands of partitions, told by librdkafka, Java and franz-go |
| `crowd` | many librdkafka clients in one process |
| `test_*` | the story beside a canary; five hundred clients; requests up to Kafka's own limits |

A story creates, describes, writes to each partition, reads all with one member and with several,
commits, asks for offsets by time, and deletes. It tells how long each step took (`@step seconds`).
"""
