"""The worker of the jobs: what a job has in its hands, when its rounds are due, and how it is led.

Runs in a process of its own or in the agent's loop; touches the store through its context. Called
by `broker.jobs`, which hosts it.
"""
