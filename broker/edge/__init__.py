"""The edge: sockets in, sockets out. The Kafka listener, its connections, and the way to handlers.

Touches sockets and the loop, and knows bytes, not meanings. Called by the composition root;
calls the handlers.
"""
