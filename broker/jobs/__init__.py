"""Jobs that keep a cluster bounded: snapshots, retention, merging, spilling, compaction, collection.

One agent holds them by claim and has them run in a worker process of its own (`host`, `worker/`):
a replica that is fed through the agent, so that no serving loop ever walks over partitions. What
a job decides is pure (`*_plan`); what it has in its hands is a `worker.context.JobContext`.

Here: who holds the jobs (`claims`) and where they run (`host`, `worker_process`, `__main__`). Called by the
composition root.
"""
