"""Spark as a means to run one function per split, wherever executors are. The only module that
knows Spark.

`Tasks.run` gives every payload its own task (a range of n partitions and a broadcast), through
`mapInArrow`, and brings back what the function returns. Errors that repeating cannot mend come
back as values, so that Spark does not try four times; all others end the task, and Spark tries
again. The JVM never sees a record.
"""

import contextlib
import logging
import os
import pickle
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from iceberg_export.errors import ExportError, SettingsError, SparkError, StoreReadError
from iceberg_export.progress import Progress
from iceberg_export.table.catalog import first_line
from iceberg_export.units import show_bytes

JAVA_MIN = 17
POLL_S = 0.2
_RESULT = "result binary"
_OF_PYTHON = re.compile(r"(?!org\.|java|scala\.)[A-Za-z_.]+(Error|Exception): ")

Result = TypeVar("Result")
Task = Callable[[Any, int], Any]
"""(payload, attempt) -> result, both picklable; importable by name on the executors."""


def _spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises: its own, the JVM bridge's, and a JVM that is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, OSError, EOFError, RuntimeError


def find_java() -> str:
    """The `java` that Spark will start. Raises SparkError when there is none new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"Spark needs Java {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless)"
    if not java or not Path(java).exists():
        where = f"JAVA_HOME is {home}, where there is no java" if home else "no java on the PATH"
        raise SparkError(f"{where}; {advice}")
    try:
        run = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkError(f"{java} cannot be started ({first_line(error)}); {advice}") from error
    found = re.search(r'version "(\d+)', run.stderr + run.stdout)
    if run.returncode != 0 or not found:
        raise SparkError(f"{java} -version fails; {advice}")
    if int(found[1]) < JAVA_MIN:
        raise SparkError(f"{java} is version {found[1]}; {advice}")
    return java


def parallelism_of(given: Mapping[str, str]) -> int:
    """How many tasks would run at a time with these settings, as far as they say; without
    starting Spark."""
    master = given.get("spark.master", "local[*]")
    if found := re.fullmatch(r"local(?:\[([0-9]+|\*)(?:,[0-9]+)?\])?", master):
        return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
    cores = given.get("spark.cores.max", "")
    if cores.isdigit():
        return int(cores)
    executors, each = (given.get(f"spark.executor.{one}", "") for one in ("instances", "cores"))
    return int(executors or 2) * int(each or 1) if (executors + each).isdigit() else 2


def _authentication(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """How driver and executors prove that they belong together: who reaches an open port of a driver
    gets what it sends to executors, credentials among it, and is believed what it answers.

    Kubernetes and YARN hand a secret of the application's own to executors. A standalone master has
    one for all: only the user can say which. Raises SettingsError when nothing is said.
    """
    if master.startswith("local") and not master.startswith("local-cluster"):
        return {}  # Nobody comes from elsewhere: all is bound to the loopback.
    said = given.get("spark.authenticate", "").lower()
    if said == "false":
        return {}
    conf = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    if master.startswith("local-cluster"):
        return {**conf, "spark.authenticate.secret": secrets.token_hex(32)}
    makes_secrets = master.startswith(("k8s://", "yarn"))
    if said or makes_secrets or "spark.authenticate.secret" in given:
        return conf
    raise SettingsError(
        f"executors of {master} come to the driver over the network: set spark.authenticate.secret to "
        "the secret that master and workers have, or spark.authenticate=false to let everybody who "
        "reaches the driver's ports take part"
    )


def _configuration(given: Mapping[str, str]) -> dict[str, str]:
    """Our defaults, then what the user said. `spark.master` decides where it runs."""
    master = given.get("spark.master", "local[*]")
    log4j = Path(__file__).parents[1] / "log4j2.properties"
    conf = {
        # Of the JVM that starts with this process; `spark-submit` has started its own.
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{log4j} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        ),
        "spark.master": master,
        "spark.app.name": "frazil-export",
        "spark.python.daemon.module": "iceberg_export.spark_daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.speculation": "false",
        "spark.task.maxFailures": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        # Workers of this machine find our packages where this process found them.
        conf["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).parents[2])
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        if found := re.fullmatch(r"local\[([0-9]+|\*)\]", master):
            # Without the second number a local task is never tried again.
            conf["spark.master"] = f"local[{found[1]},4]"
    conf |= _authentication(master, given)
    if not master.startswith("local") and (shipped := given.get("spark.submit.pyFiles")):
        # They lie in an executor's working directory before its first task. Spark tells tasks of
        # them, but not the daemon, which is ours and starts before any task.
        path = [one.strip().rsplit("/", 1)[-1] for one in shipped.split(",") if one.strip()]
        path += filter(None, [given.get("spark.executorEnv.PYTHONPATH")])
        given = {**given, "spark.executorEnv.PYTHONPATH": ":".join(path)}
    return {**conf, **given, "spark.master": conf["spark.master"]}


class Tasks:
    """A running Spark session. `close` ends it, and its JVM."""

    def __init__(self, session: Any, progress: Progress) -> None:
        self._session = session
        self._progress = progress

    @property
    def parallelism(self) -> int:
        """Tasks that run at the same time. Raises SparkError."""
        with _asking():
            return int(self._session.sparkContext.defaultParallelism)

    def run(
        self,
        task: Callable[[Any, int], Result],
        payloads: Sequence[Any],
        *,
        sizes: Sequence[int],
        title: str,
    ) -> list[Result]:
        """`task(payload, attempt)` for every payload, results in any order.

        `sizes` (bytes) are for progress only. Raises what a task raised when it was an
        ExportError, SparkError when Spark or a worker failed.
        """
        assert len(payloads) == len(sizes)
        if not payloads:
            return []
        sent = [pickle.dumps((task, payload)) for payload in payloads]
        with _asking():
            shared = self._session.sparkContext.broadcast(sent)
            frame = self._session.range(0, len(payloads), 1, len(payloads)).mapInArrow(
                _runner(shared), _RESULT
            )
        rows = self._collect(frame, lambda: self._show(title, sum(sizes), len(payloads)))
        with contextlib.suppress(*_spark_errors()):
            shared.unpersist()
        outcomes = [pickle.loads(row.result) for row in rows]  # noqa: S301 - made by our tasks.
        for outcome in outcomes:
            if isinstance(outcome, ExportError):
                raise outcome
        return outcomes

    def _collect(self, frame: Any, show: Callable[[], None]) -> list[Any]:
        """`frame.collect()` in a thread, while this one shows how far it is."""
        from pyspark import InheritableThread

        done: Future[list[Any]] = Future()

        def collect() -> None:
            try:
                done.set_result(frame.collect())
            except BaseException as error:  # noqa: BLE001 - Else whoever waits for it waits for ever.
                done.set_exception(error)

        # Spark's own kind of thread, since it gives its connection to the JVM back.
        thread = InheritableThread(target=collect)
        thread.start()
        while not wait([done], POLL_S).done:
            # Where the JVM is gone, that is said by what it was to do.
            with contextlib.suppress(*_spark_errors()):
                show()
        thread.join()
        try:
            return done.result()
        except _spark_errors() as error:
            raise _spark_error(error) from error

    def _show(self, title: str, byte_count: int, task_count: int) -> None:
        tracker = self._session.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        finished = max((info.numCompletedTasks for info in infos if info), default=0)
        self._progress.bar(title, finished, task_count, f"tasks, {show_bytes(byte_count)} in all")

    def close(self) -> None:
        # A JVM that is gone has stopped already.
        with contextlib.suppress(*_spark_errors()):
            self._session.stop()
        _forget_dead_jvm()


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Around calls of the JVM, which may be gone: it was killed for its memory, say."""
    try:
        yield
    except _spark_errors() as error:
        raise SparkError(f"Spark does not answer: {_java_error_text(error)}") from error


def _forget_dead_jvm() -> None:
    """PySpark would go on asking the one that has died, whoever wants a session next."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - There is no other way.
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    with contextlib.suppress(*_spark_errors()):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001


def _runner(shared: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs in each partition of the range."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task, payload = pickle.loads(shared.value[number])  # noqa: S301 - our own.
                outcome = pickle.dumps(_attempt(task, payload, attempt))
                yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], ["result"])

    return run


def _attempt(task: Task, payload: Any, attempt: int) -> Any:
    try:
        return task(payload, attempt)
    except StoreReadError as error:
        if error.again:
            raise
        return error
    except ExportError as error:
        return error


def _spark_error(error: Exception) -> ExportError:
    """A failure of Spark as one sentence; of a worker's traceback the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("iceberg_export.errors.")]
    if ours:
        return SparkError(ours[0].split(": ", 1)[-1])
    python = [line for line in lines if _OF_PYTHON.match(line)]
    return SparkError(f"a Spark task failed: {python[-1] if python else _java_error_text(error)}")


def _java_error_text(error: Exception) -> str:
    """Of a failure in the JVM what it says, not which call of Python met it."""
    found = re.search(r"^: (?:[\w.$]+(?:Exception|Error): )?(.+)$", str(error), re.MULTILINE)
    return found[1].strip().rstrip(".") if found else first_line(error)


def _submitted() -> dict[str, str]:
    """What `spark-submit` was told, when it is what started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM that is there.
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())  # noqa: SLF001


def start(given: Mapping[str, str], progress: Progress) -> Tasks:
    """Start Spark with the settings `spark.*`; they win over those of `spark-submit`, if that is
    what started us, and those over ours. Raises SparkError (no Java, will not start), SettingsError."""
    submitted = _submitted()
    if not submitted:
        find_java()
    conf = _configuration({**submitted, **given})
    if conf["spark.master"].startswith("local"):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # What has no setting of its own (the UI, if somebody wants it) is bound to this.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        # Executors are elsewhere: their Python is what the user says, or else the same path.
        os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except _spark_errors() as error:
        raise SparkError(f"Spark does not start: {_java_error_text(error)}") from error
    return Tasks(session, progress)
