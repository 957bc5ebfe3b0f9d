"""Real, unchanged Kafka clients against real agents: embedded, and three over etcd and S3."""
