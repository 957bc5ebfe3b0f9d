"""What holds for every HTTP listener of an agent: the admin endpoints', and the schema registry's.

    listener     an aiohttp application on a socket, guarded
    connections  how many there are, how long they may take, how much they may hold
    admission    whose requests are let in: names in Host, pages of other sites, types of bodies
    turns        one request computes at a time; one answer for all who ask at once

Called by the composition root, which opens the sockets. What the endpoints do is theirs
(`broker/admin`, `broker/registry`); they are handed requests that are let in, with their bodies read.
"""
