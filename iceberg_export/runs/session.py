"""What a command works with: settings, agents, catalog, and Spark when it is first needed.

One session per process. A job is made for each round of exports, with a run id of its own: a run
id that comes twice would be taken for a commit that is in already. Leaves out what commands do
with it, and their arguments (`cli`).
"""

import difflib
import random
import re
import time
from collections.abc import Callable
from enum import Enum

from pyiceberg.catalog import Catalog

from iceberg_export.errors import ExportError, SettingsError
from iceberg_export.plan.agent_client import AgentClient, Pinned, Topic, Topics
from iceberg_export.plan.trust import pinned_store
from iceberg_export.progress import Progress
from iceberg_export.runs.job import Committed, Job, always_continue, new_run_id
from iceberg_export.settings import Settings
from iceberg_export.table import topic_settings
from iceberg_export.table.catalog import guarded, missing_warehouse, open_catalog
from iceberg_export.table.commit import Pause
from iceberg_export.tasks import spark
from iceberg_export.tls_files import AGENT, TlsFiles

TOPICS_NAMED_MAX = 10
NOWHERE = {"type": "sql", "uri": "sqlite:///:memory:"}
WHICH_WAREHOUSE = (
    "name the folder that frazil export run has (--data) or the settings of its catalog (catalog.*)"
)


class Missing(Enum):
    """What becomes of an embedded warehouse that nobody has made yet."""

    IS_MADE = "when it is first needed"
    IS_EMPTY = "and stays so: a run would make it"
    IS_REFUSED = "in another working directory everything would be called lag"


class Session:
    """`close` ends Spark, if it was started."""

    def __init__(
        self, settings: Settings, progress: Progress, missing: Missing = Missing.IS_MADE
    ) -> None:
        """Raises ExportError."""
        self.settings = settings
        self.progress = progress
        self.client = AgentClient(
            settings.agents,
            timeout_ms=settings.number("agent.timeout.ms"),
            sleep=time.sleep,
            store=pinned_store(settings.values),
            token=settings.agent_token,
            context=TlsFiles(settings.values, AGENT).context,
        )
        self._new_warehouse = missing_warehouse(settings.catalog, settings.data)
        self._is_known = False
        """The warehouse is the one that the agents know."""
        self._catalog: Catalog | None = None
        if self._new_warehouse is None:
            self._catalog = self.catalog
        elif missing is Missing.IS_REFUSED:
            raise SettingsError(
                f"there is no warehouse at {self._new_warehouse}; {WHICH_WAREHOUSE}"
            )
        elif missing is Missing.IS_EMPTY:
            progress.say(f"no warehouse yet, a run would make one: {self._new_warehouse}")
            self._new_warehouse = None
            self._catalog = open_catalog(NOWHERE, settings.data)
        self._rng = random.SystemRandom()
        self._tasks: spark.Tasks | None = None

    @property
    def catalog(self) -> Catalog:
        """Opened when it is first asked for. Raises CatalogError and SettingsError."""
        if self._catalog is None:
            self._catalog = open_catalog(self.settings.catalog, self.settings.data)
        return self._catalog

    def check_warehouse(self, topics: Topics) -> None:
        """Raises SettingsError when the agents know of tables, and those are in another warehouse: there is none
        here, or a catalog without any namespace of theirs. A table that is missing alone proves nothing, since
        people drop tables to have them made anew. Raises CatalogError.
        """
        known = [topic for topic in topics.topics if any(topic.exported.values())]
        if not known or self._is_known:
            return
        told = ", ".join(topic.name for topic in known[:TOPICS_NAMED_MAX])
        if self._new_warehouse is not None:
            raise SettingsError(
                f"there is no warehouse at {self._new_warehouse}, and the agents know of tables in"
                f" one (of {told}); {WHICH_WAREHOUSE}, or begin another one with --new-warehouse"
            )
        spaces = {self._namespace(topic) for topic in known}
        if not any(self._has_namespace(one) for one in sorted(spaces)):
            raise SettingsError(
                f"the catalog has no namespace {' or '.join(sorted(spaces))}, and the agents know of tables"
                f" there (of {told}); {WHICH_WAREHOUSE}, or begin another one with --new-warehouse"
            )
        self._is_known = True

    def _namespace(self, topic: Topic) -> str:
        default = self.settings["table.namespace"]
        try:
            settings = topic_settings.parse(topic.configs, topic.name)
        except SettingsError:
            return default
        return settings.identifier(default, topic.name)[0]

    def _has_namespace(self, name: str) -> bool:
        what = f"look for namespace {name}"
        return guarded(what, lambda: bool(self.catalog.namespace_exists((name,))))

    def job(
        self, cluster_id: str, after_commit: Callable[[Committed], bool] = always_continue
    ) -> Job:
        """Returns a new run over that cluster."""
        if self._new_warehouse is not None:
            self.progress.say(f"no warehouse yet, made an empty one: {self._new_warehouse}")
            self._new_warehouse = None
        return Job(
            settings=self.settings,
            client=self.client,
            catalog=self.catalog,
            cluster_id=cluster_id,
            run_id=new_run_id(self._rng),
            runner=self._runner,
            pause=Pause(time.sleep, self._rng),
            after_commit=after_commit,
        )

    def _runner(self) -> spark.Tasks:
        if self._tasks is None:
            self.progress.say("starting Spark")
            self._tasks = spark.start(self.settings.spark, self.progress)
        return self._tasks

    def pinned(self, job: Job) -> Pinned:
        """Keeps the chunks that the job's plans name until it is done with them."""
        lifetime_ms = self.settings.number("pin.lifetime.ms")
        return Pinned(self.client, f"export-{job.run_id}", lifetime_ms)

    def close(self) -> None:
        """Ends Spark; the next job that needs it starts it anew."""
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.close()


def matching_topics(topics: Topics, pattern: str | None) -> list[Topic]:
    """Returns the topics that match, all without a pattern. Raises ExportError when none does."""
    if pattern is None:
        return list(topics.topics)
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise SettingsError(f"--topics {pattern!r} is no regular expression: {error}") from error
    found = [topic for topic in topics.topics if regex.fullmatch(topic.name)]
    if not found:
        names = [topic.name for topic in topics.topics[:TOPICS_NAMED_MAX]]
        raise ExportError(
            f"no topic matches {pattern!r} (topics: {', '.join(names) or 'there is none'})"
        )
    return found


def topic_named(topics: Topics, name: str) -> Topic:
    """Returns the topic of that name. Raises ExportError, with the nearest name that there is."""
    for topic in topics.topics:
        if topic.name == name:
            return topic
    names = [topic.name for topic in topics.topics]
    if near := difflib.get_close_matches(name, names, n=1):
        raise ExportError(f"there is no topic {name}; is it {near[0]}?")
    some = ", ".join(names[:TOPICS_NAMED_MAX]) + (", …" if len(names) > TOPICS_NAMED_MAX else "")
    raise ExportError(f"there is no topic {name} (topics: {some or 'there is none'})")
