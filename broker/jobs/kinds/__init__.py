"""The kinds of jobs: for each a plan (pure) and the job that carries it out.

A job touches what its context gives it and nothing else. Called by the worker, by way of
`job_table`.
"""
