"""Producers and transactions: ids, epochs, sequence windows. Pure, the whole package.

Holds the rules of KIP-98, KIP-360 and KIP-890 as functions from a packed state and an event to a
verdict; the machine (`coordinator.machine.machine`) keeps the states and asks.
"""
