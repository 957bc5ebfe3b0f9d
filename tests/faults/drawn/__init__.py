"""Faults over real processes, drawn from a seed: `make faults SEED=17 SECONDS=180`.

`plan` draws what befalls whom and when, a pure function of the seed. `link` is a network that can be
cut, `linked_cluster` agents, etcd and a store on it, `clients` the load and its accounts. `run` does
what is planned and validates what came of it; `report` makes one page of it, a pure function of what
was recorded (`recorded`).
"""
