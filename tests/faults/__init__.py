"""Real processes, real etcd, a real S3 server, and what befalls them: kills, pauses, outages."""
