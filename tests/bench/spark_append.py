"""What a data engineer without Frazil runs: Spark's Kafka source, appended to an Iceberg table.

`python -m tests.bench.spark_append BOOTSTRAP WAREHOUSE JARS TOPIC…` appends each topic to a table
of its name, in one session, and prints a line when a topic is in. The table has the exporter's
columns and partitions; fan-out and no shuffle are the cheapest way to write it.
"""

import sys

COLUMNS = (
    "partition AS kafka_partition, offset AS kafka_offset, timestamp AS kafka_timestamp, "
    "timestampType AS kafka_timestamp_type, key AS kafka_key, headers AS kafka_headers, value"
)


def main(bootstrap: str, warehouse: str, jars: str, topics: list[str]) -> None:
    from pyspark.sql import SparkSession

    catalog = "spark.sql.catalog.lake"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "hadoop")
        .config(f"{catalog}.warehouse", warehouse)
        .getOrCreate()
    )
    for topic in topics:
        session.sql(
            f"CREATE TABLE lake.db.`{topic}` (kafka_partition int, kafka_offset bigint, "
            "kafka_timestamp timestamp, kafka_timestamp_type int, kafka_key binary, "
            "kafka_headers array<struct<key string, value binary>>, value binary) "
            "USING iceberg PARTITIONED BY (days(kafka_timestamp)) "
            "TBLPROPERTIES ('write.distribution-mode'='none', "
            "'write.spark.fanout.enabled'='true', 'write.parquet.compression-codec'='zstd', "
            "'write.parquet.compression-level'='1')"
        )
        frame = (
            session.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        frame.selectExpr(*COLUMNS.split(", ")).writeTo(f"lake.db.`{topic}`").append()
        print(f"{topic} is in", flush=True)
    sys.stdin.readline()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
