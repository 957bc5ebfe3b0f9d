"""What holds for every HTTP listener of an agent: the admin endpoints', and the schema registry's.

    listener     an aiohttp application on a socket, guarded
    connections  how many there are, how long they may take, how much they may hold
    admission    whose requests are let in: names in Host, pages of other sites, types of bodies
    routes       an application's routes, each with what it takes to ask for it
    logins       who asks: by tokens (files, read again), passwords (users of PLAIN and SCRAM), certificates
    turns        one request computes at a time; one answer for all who ask at once

Called by `broker.http_listeners`, which opens the sockets. What the endpoints do, and who may ask for it, is
theirs (`broker/admin`, `broker/registry`); they are handed requests that are let in, with their bodies read.
"""
