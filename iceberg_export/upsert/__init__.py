"""Tables of mode upsert: the newest record of each key, bucket by bucket.

Called by runs and verification.
"""
