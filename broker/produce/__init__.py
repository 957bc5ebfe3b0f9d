"""The produce path: from the batches of a Produce request to a chunk, a commit, and an answer.

`produce_path` is the shell; what it decides by is pure. Called by the handler of Produce.
"""
