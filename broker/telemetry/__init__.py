"""Metrics that clients push (KIP-714, KIP-1076): whom they are asked of, and what becomes of them.

    subscriptions  what is asked of a client, by the subscriptions in the log
    instances      the clients that push, and what may come of each when
    otlp           a payload, OTLP in Protobuf, read into points and labelled
    series         points as series, for /metrics
    forwarding     payloads to a collector, over OTLP/HTTP
    collecting     these together

May touch the machine's table of configs, and nothing of a request but its call. Called by the handlers
of GetTelemetrySubscriptions and PushTelemetry, and by whoever tells metrics.
"""
