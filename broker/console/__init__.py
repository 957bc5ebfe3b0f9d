"""The console: pages at `/` of the admin listener that show a cluster to people.

An agent is a replica of the whole machine, so any agent draws every page from what it has in memory; a page asks
nobody else and writes nothing; those of records (`record_pages`, `record_producing`) have the agent fetch and produce, as
clients have. `views` say what is on a page, pure, as values; `templates/` make HTML of them
(`rendering`); `pages` has the routes. What is on a page is bounded: lists are cut into pages, whatever there is.

Called by `broker.http_composition`. Touches `broker.admin`, whose roles, barrier and bounds hold here, too. The look
of it is in `static/`, one style sheet and one module of our own beside idiomorph (0BSD), which puts what has changed
into a page without taking focus or scroll from whoever reads it.
"""
