"""Data files of tables: rows into files by partition of the table, and back.

Touches the warehouse. Called by tasks, upsert, dead_letters, upkeep, verify and source.
"""
