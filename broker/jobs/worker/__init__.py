"""The worker of the jobs: the context of a job, the schedule of its rounds, and the link to the agent.

Runs in a process of its own or in the agent's loop; touches the store through its context. Called
by `broker.jobs`, which hosts it.
"""
