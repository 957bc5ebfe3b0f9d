"""The Iceberg table of a topic: catalog, columns, state, and the commit that makes exports exact.

Touches catalogs. Called by runs, upkeep, verification and the data source.
"""
