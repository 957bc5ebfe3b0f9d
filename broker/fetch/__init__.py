"""The fetch path: from a Fetch request to record batches: sessions, long polls, reads, answers.

`fetch_path` and `store_reads` are the shells; the rest is pure. Called by the handler of Fetch.
"""
