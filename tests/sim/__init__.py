"""The simulator: whole agents in one process, on virtual time, from a seed.

`python -m tests.sim --seed 17` replays one run. The agents are the real ones over the memory log
and the memory store; the loop (`tests.kit.loop`), the network (`network`) and the faults
(`tests.kit.faults`) are drawn from the seed, so a failure is its seed, which `shrink` makes a short
script. `world` is the cluster, `nemesis` what befalls it, `simulation` the run; `client` speaks Kafka to it; `workload` says what is done with records,
`account` what must hold of them. The kinds of worlds (`seeds`) say what differs: load, other faults,
accounts.
"""
