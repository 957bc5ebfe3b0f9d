"""The exporter: a PySpark job that turns chunks into Iceberg tables, each record exactly once.

Planning, rows and the commit's decisions are pure; `job` is the shell that talks to Spark. It
imports neither the broker nor anything an executor does not have.
"""
