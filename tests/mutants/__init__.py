"""A catalogue of planted bugs: small changes of the product, each with the tests that must fail for it.

`python -m tests.mutants` (`make mutants`) plants one after the other in copies of the tree, runs the
tests that the entry names, and tells which bugs survived. Each promise has three or more
(docs/design/promises.md). `--simulate` runs seeds of the simulator instead, of those that concern
what it is there for (docs/planted-bugs.md). An entry names no file: the product is searched for its text, the tests
for the test's name, so the same catalogue runs on trees whose folders differ.

`mutant` is the shape of an entry; `catalogue` puts the entries together, which are data in the
modules beside it, by subject; `planting` finds and plants; `running` runs the tests, `simulating`
the seeds, and `sightings` keeps what those found.
"""
