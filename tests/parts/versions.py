"""The version of each part, and the jars of those that Java runs: the only place that names them."""

ETCD_VERSION = "3.6.16"
MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
HELM_VERSION = "v3.22.0"
KAFKA_VERSION = "4.3.1"
FRANZ_GO_VERSION = "v1.22.2"
KADM_VERSION = "v1.18.0"
SARAMA_VERSION = "v1.61.1"
KAFKA_GO_VERSION = "v0.4.51"
KAFKAJS_VERSION = "2.2.4"
KAFKAJS_REGISTRY_VERSION = "3.9.0"
"""The last that runs on Debian's Node.js."""
ICEBERG_VERSION = "1.12.0"
ICEBERG_SPARK = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG_VERSION)
SPARK_KAFKA = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.3"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
"""Spark's Kafka source, each jar by name: what they say of one another is not to be had anywhere."""
CONNECT_ICEBERG = (
    ("org.apache.iceberg", "iceberg-kafka-connect", ICEBERG_VERSION),
    ("org.apache.iceberg", "iceberg-parquet", ICEBERG_VERSION),
    ("org.apache.iceberg", "iceberg-data", ICEBERG_VERSION),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.2"),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2"),
    ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    ("org.apache.kafka", "connect-json", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
DEBEZIUM = (
    ("io.debezium", "debezium-connector-postgres", "3.3.1.Final"),
    ("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final"),
    *(
        ("org.apache.kafka", name, KAFKA_VERSION)
        for name in ("kafka-clients", "connect-api", "connect-json", "connect-runtime")
    ),
    ("org.slf4j", "slf4j-api", "2.0.17"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
"""With Kafka Connect, and what makes Avro of its records."""
FLINK = (
    # First, so that its slf4j-api is taken, which is newer than Flink's.
    ("org.slf4j", "slf4j-simple", "2.0.17"),
    ("org.apache.flink", "flink-clients", "2.2.1"),
    ("org.apache.flink", "flink-connector-base", "2.2.1"),
    ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
)
FLINK_SPARED = (
    *("flink-shaded-zookeeper-3", "async-profiler", "javassist"),
    *("zstd-jni", "snappy-java"),
)
"""What a job in one process, without codecs, does not need: a third of the bytes."""
CONNECT = (
    *(
        ("org.apache.kafka", name, KAFKA_VERSION)
        for name in ("connect-api", "connect-file", "connect-json", "connect-runtime")
    ),
    ("org.slf4j", "slf4j-api", "2.0.17"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
MIRROR = (
    ("org.apache.kafka", "connect-mirror", KAFKA_VERSION),
    ("org.slf4j", "slf4j-api", "2.0.17"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
)
ICEBERG_REST = (
    ("org.apache.iceberg", "iceberg-core", "1.11.0"),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.2"),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
    ("org.eclipse.jetty", "jetty-server", "12.1.3"),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.3"),
)
NESSIE_VERSION = "0.99.0"
TRINO_VERSION = "476"
JRE_25_VERSION = "25.0.2.1"
POSTGRES_WHEEL_VERSION = "0.6.0"
LIBFAKETIME_WHEEL_VERSION = "3.0.1"
