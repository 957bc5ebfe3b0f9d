"""Dead letters: records that could not be decoded, in a dead-letter table beside the topic's table.

Called by runs, upkeep and verification.
"""
