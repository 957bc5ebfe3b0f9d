"""What an agent asks of store and log beside records: whose they are, how new, what time, if there.

Touches the store and the log. Called by the composition root at start and by its periodic tasks.
"""
