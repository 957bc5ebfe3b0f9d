"""The fetch path: from a Fetch request to record batches: sessions, long polls, reads, answers.

`fetching` and `loading` are the shells; the rest is pure. Called by the handler of Fetch.
"""
