"""The simulator: whole agents in one process, on virtual time, from a seed.

`python -m tests.sim --seed 17` replays one run. The agents are the real ones over the memory log
and the memory store; the loop (`loop`), the network (`network`) and the faults (`faults`) are
drawn from the seed, so a failure is its seed. `world` puts a cluster together, `client` speaks
Kafka to it, `workload` says what is done to it, `checkers` what must hold.
"""
