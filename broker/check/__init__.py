"""The check of a cluster: what the log says is in the store, beside what is there.

`comparison` and `lost_ranges` are pure, `checking` reads the store; `check_report` says it to people, and `losses`
declares lost what is. Called by `broker.cli.checks` and `broker.admin.listener`.
"""
