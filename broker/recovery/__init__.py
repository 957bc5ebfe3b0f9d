"""Recovery: a cluster whose log is lost goes on in another era, from what its store has of it.

`rebuilding` makes the machine anew, from a snapshot and the archives that reach on from it (`archive_chain`, `archives`; those that
contradict each other: `histories`); `outcome` has what is asked and what was made;
`unarchived` lists the records that were written and of which no archive tells; `recovery` begins the era. No agent runs
meanwhile. Touches the store, the log and the machine. Called by the command line (`frazil recover`).
"""
