"""Client quotas at one agent: what users, client ids and addresses use up, and for how long they wait.

Pure: time is an argument. `rates` is Kafka's arithmetic, `entities` says which quota holds for a
client and with whom its usage is counted together, `sensors` keep the usage within bounds of
memory, `quotas` puts them together, `parts` shares the cluster's quotas out among agents. May touch
settings and the table of quotas. Called by the dispatcher, the fetch path, handlers of topics, the
edge, metrics and upkeep.
"""
