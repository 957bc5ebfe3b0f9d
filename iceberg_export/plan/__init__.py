"""What is to be read: an agent's plan of a topic, cut into splits for tasks.

`agent_client` asks agents over HTTP; `splits` is pure. Called by runs, verification and the data
source.
"""
