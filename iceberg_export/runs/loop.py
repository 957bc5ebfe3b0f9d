"""`frazil export run`: every topic once, or again and again as topics are due.

An error of one topic never stops the others, and a loop tries that topic again after growing
pauses. An error that concerns all topics (no agent, no Spark) ends the round, and the next round
tries again. After each commit the loop reports the table's offsets to the agents. That is advice
(retention may wait for it), so a failed report is printed and no more. A request to stop takes
effect between commits.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TextIO

from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import AgentError, CatalogError, ExportError, SparkError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.runs import failures
from iceberg_export.runs.due import (
    FailedExports,
    TopicLag,
    count_failure,
    is_due,
    is_worth_reporting,
    may_retry,
    poll_interval_ms,
)
from iceberg_export.runs.export import ExportReport, export_topic
from iceberg_export.runs.job import Committed, Job, table_identifier
from iceberg_export.runs.metrics import LoopMetrics, TopicMetrics
from iceberg_export.runs.session import Session, matching_topics
from iceberg_export.runs.status import (
    TopicStatus,
    offsets_of_all,
    table_offsets,
    table_source,
    topic_status,
)
from iceberg_export.runs.table_choice import each_table
from iceberg_export.table.catalog import UNFORESEEN_ERRORS, first_line
from iceberg_export.table.topic_settings import TopicTable, parse
from iceberg_export.units import show_duration
from protocol.fault_codes import Sentence, fault_of, told

PAUSE_SLICE_S = 0.2
FAILED_ROUND_PAUSE_MS_MAX = 60_000
"""After a round that failed as a whole the next one comes so soon, whatever the interval."""
DEAD_LETTERS = 4
"""Exit code of `--once` when all is done and some records could not be decoded."""
STOPPED = 143
"""Exit code of `--once` that was asked to end before it was done: as of a process that SIGTERM
ended, so whoever started it knows that there is more to do."""


@dataclass(slots=True)
class StopRequest:
    """A request to end, set by a signal's handler: hence a plain field and no lock."""

    asked: bool = False

    def ask(self, *_signal: object) -> None:
        self.asked = True


@dataclass(slots=True)
class Clock:
    """Time for a loop, the caller's."""

    monotonic_s: Callable[[], float]
    wall_ms: Callable[[], int]
    sleep: Callable[[float], None]

    def now_ms(self) -> int:
        return int(self.monotonic_s() * 1000)


Table = tuple[Topic, TopicTable]


@dataclass(slots=True)
class _ExportProgress:
    """What an export of one topic has committed so far."""

    byte_count: int = 0
    ended_early: bool = False
    """Not at the log's end, as far as anyone here knows."""


@dataclass(slots=True)
class Runner:
    """Exports the topics of a session, and remembers between rounds what became of each."""

    session: Session
    clock: Clock
    stop: StopRequest
    output: TextIO
    pattern: str | None = None
    bytes_max: int | None = None
    """Of each topic, in one run; the rest is left for the next."""
    may_begin_anew: bool = True
    """An embedded warehouse is made though the agents know of tables in another one."""
    numbers: LoopMetrics = field(default_factory=LoopMetrics)
    _letter_counts: LetterCounts = field(default_factory=LetterCounts)
    _cluster_id: str = ""
    _caught_up_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """By `Topic.key`."""
    _reported: dict[str, dict[int, int]] = field(default_factory=dict)
    """By topic id: the offsets last reported to the agents, here or as they say."""
    _reported_letters: dict[str, dict[str, int]] = field(default_factory=dict)
    """By topic id: dead letters by reason, as the agents were told last."""
    _reports_refused: bool = False
    """The agents refused the last report, which was printed once."""
    _interval_ms: int = 0
    _round_began_ms: int = 0
    """When the round began."""
    _failing: dict[tuple[str, str], FailedExports] = field(default_factory=dict)
    """By `Topic.key`."""
    _refused: list[Topic] = field(default_factory=list)
    """Topics whose settings are wrong, as they were last asked for."""
    _made_dead_letters: bool = False
    _round_failed: tuple[str, int] = ("", 0)
    """Why the last rounds failed, and how many in a row for that reason."""

    def once(self) -> int:
        """Runs one round over all topics and returns the exit code. Raises what concerns all of them."""
        tables, code = self._tables()
        if not tables and not code:
            self._print("nothing to export: the cluster has no topics yet, or none is enabled")
        with self._pinned(tables) as job:
            for topic, _table in tables:
                if self.stop.asked:
                    break
                code = max(code, self._export(job, topic))
        if self.stop.asked:
            return STOPPED
        return code or (DEAD_LETTERS if self._made_dead_letters else 0)

    def forever(self, interval_ms: int) -> int:
        """Runs rounds until asked to stop, and returns 0."""
        self._interval_ms = interval_ms
        while not self.stop.asked:
            started_ms = self._round_began_ms = self.clock.now_ms()
            wait_ms = interval_ms
            try:
                wait_ms = self._round(interval_ms)
                self.numbers.round_done(self.clock.wall_ms(), self.clock.now_ms() - started_ms)
                self._round_failed = ("", 0)
            except ExportError as error:
                # Of all topics: an agent, Spark, the catalog. They may come back.
                self.numbers.rounds_failed += 1
                wait_ms = min(interval_ms, FAILED_ROUND_PAUSE_MS_MAX)
                self._print_failed_round(told(error))
                if isinstance(error, SparkError):
                    self.session.close()
            self._pause(started_ms + wait_ms)
        self.session.progress.say("asked to stop: what was begun is in, or invisible")
        return 0

    def _print_failed_round(self, reason: str) -> None:
        """Prints why the round failed, ever more seldom while the reason stays the same."""
        before, times = self._round_failed
        times = times + 1 if reason == before else 1
        self._round_failed = (reason, times)
        if times & (times - 1) == 0:
            again = f" (for the {times}th time)" if times > 1 else ""
            self.session.progress.say(
                f"this round failed, the next one tries again{again}: {reason}"
            )

    def _pause(self, until_ms: int) -> None:
        while not self.stop.asked and (left := until_ms - self.clock.now_ms()) > 0:
            self.clock.sleep(min(PAUSE_SLICE_S, left / 1000))

    def _round(self, interval_ms: int) -> int:
        """Exports what is due; returns the milliseconds from this poll to the next."""
        tables, _code = self._tables()
        wait_ms = poll_interval_ms(interval_ms, (table.max_lag_ms for _topic, table in tables))
        job = self.session.job(self._cluster_id)
        due: list[Table] = []
        for topic in self._refused:
            self._poll(job, topic)
        for topic, table in tables:
            if self.stop.asked:
                return wait_ms
            if self._is_due(job, topic, table, wait_ms):
                due.append((topic, table))
        with self._pinned(due) as job:
            for topic, _table in due:
                if self.stop.asked:
                    break
                self._export(job, topic)
        return wait_ms

    def _is_due(self, job: Job, topic: Topic, table: TopicTable, wait_ms: int) -> bool:
        """Polls the topic, updates its metrics, and tells whether it is due."""
        now_ms = self.clock.now_ms()
        status = self._poll(job, topic)
        if not self._may_retry(topic):
            return False
        if status.problem or status.commits < 0:
            return True  # The export makes the table, or says what is wrong.
        if status.names_dead_letters and topic.key not in self._caught_up_ms:
            return True  # It begins with what a crash left undone.
        offsets = {row.partition: row.exported for row in status.partitions}
        if status.lag == 0:
            self._caught_up_ms[topic.key] = now_ms
            self._clear_failure(topic)
            # A report that was lost is made up for here.
            self._report(topic, offsets)
        else:
            self._report_rollback(topic, offsets)
        caught_up_ms = self._caught_up_ms.get(topic.key)
        return is_due(
            TopicLag(status.lag, status.byte_count, table.max_lag_ms, caught_up_ms),
            next_poll_ms=now_ms + wait_ms,
            bytes_enough=self._bytes_enough,
        )

    @property
    def _bytes_enough(self) -> int:
        return self.session.settings.number("file.bytes.max")

    def _poll(self, job: Job, topic: Topic) -> TopicStatus:
        """Asks where the topic's export stands, for its metrics too."""
        status = topic_status(job, topic, self._letter_counts, bytes_enough=self._bytes_enough)
        self._numbers(topic).polled(status, self.clock.wall_ms())
        return status

    def _tables(self) -> tuple[list[Table], int]:
        """Returns the topics to export, and the exit code of those whose settings are wrong."""
        found: list[Table] = []
        code = 0
        self._refused = []
        topics = self.session.client.topics()
        if not self.may_begin_anew:
            self.session.check_warehouse(topics)
        self._cluster_id = topics.cluster_id
        for topic in matching_topics(topics, self.pattern):
            try:
                table = parse(topic.configs, topic.name)
            except ExportError as error:
                if self._may_retry(topic):
                    self._failed(topic, error)
                code = max(code, error.exit_code)
                self._refused.append(topic)
                continue
            if table.enable:
                found += [(one, table) for one in each_table(topic)]
            else:
                self._clear_failure(topic)
            if topic.exported:
                self._reported[topic.topic_id] = dict(topic.exported)
        return found, code

    def _numbers(self, topic: Topic) -> TopicMetrics:
        return self.numbers.topics.setdefault((topic.name, topic.route), TopicMetrics())

    def _may_retry(self, topic: Topic) -> bool:
        return may_retry(self._failing.get(topic.key), topic.configs, self.clock.now_ms())

    def _failed(self, topic: Topic, error: ExportError) -> int:
        """Remembers the failure and prints what is new; returns the exit code."""
        before = self._failing.get(topic.key)
        now = self._remember(topic, error)
        if is_worth_reporting(before, now):
            then = f"; the next try is in {show_duration(now.pause_ms)}" if now.pause_ms else ""
            text = f"{topic.title}: {error}{then}"
            self.session.progress.say(told(Sentence(text, fault_of(error))))
        return error.exit_code

    def _remember(self, topic: Topic, error: ExportError) -> FailedExports:
        self._caught_up_ms.pop(topic.key, None)
        now = count_failure(
            self._failing.get(topic.key),
            told(error),
            configs=topic.configs,
            began_ms=self._round_began_ms,
            interval_ms=self._interval_ms,
        )
        self._failing[topic.key] = now
        self._numbers(topic).count_failure(now.times)
        self._note(topic, failures.Failure(now.times, self.clock.wall_ms(), now.reason))
        return now

    def _clear_failure(self, topic: Topic) -> None:
        """Forgets the topic's failures."""
        self._failing.pop(topic.key, None)
        if (numbers := self.numbers.topics.get((topic.name, topic.route))) is not None:
            numbers.consecutive_failures = 0
        self._note(topic, None)

    def _note(self, topic: Topic, failure: failures.Failure | None) -> None:
        failures.note(self.session.settings.data, topic.title, failure)

    def _export(self, job: Job, topic: Topic) -> int:
        """Exports one topic and returns the exit code. Raises AgentError and SparkError, which concern all."""
        self.session.progress.show(f"{topic.title}: planning")
        began_ms = self.clock.now_ms()
        progress = _ExportProgress()
        try:
            self._report_rollback(topic, table_offsets(job, table_identifier(job, topic)))
            report = export_topic(
                job._replace(after_commit=partial(self._after_commit, progress)), topic
            )
            if not report.commits:
                self._report(topic, table_offsets(job, table_identifier(job, topic)))
        except AgentError:
            self._caught_up_ms.pop(topic.key, None)
            self._numbers(topic).errors += 1
            raise
        except SparkError as error:
            # Whether Spark or this topic is to blame: the others are tried before it next time.
            self._remember(topic, error)
            raise SparkError(f"{topic.title}: {error}") from error
        except ExportError as error:
            # The other topics need not wait for this one.
            return self._failed(topic, error)
        except UNFORESEEN_ERRORS as error:
            # Nor for a table that is in a state that nobody thought of; who mends it has to see where.
            traceback.print_exception(error)
            what = f"{type(error).__name__}: {first_line(error)}"
            return self._failed(topic, CatalogError(f"its table cannot be exported to ({what})"))
        self._clear_failure(topic)
        if not progress.ended_early:
            self._caught_up_ms[topic.key] = began_ms
        numbers = self._numbers(topic)
        numbers.exported(self.clock.wall_ms(), caught_up=not progress.ended_early)
        numbers.bad += report.dead + report.left_out
        self._made_dead_letters |= report.dead > 0
        self._print(sentence(report, ended_early=progress.ended_early))
        return 0

    def _after_commit(self, progress: _ExportProgress, committed: Committed) -> bool:
        """Counts the commit and reports it to the agents; tells whether to go on."""
        progress.byte_count += committed.byte_count
        self._numbers(committed.topic).committed(committed)
        self._report(committed.topic, committed.state.offsets)
        enough = self.bytes_max is not None and progress.byte_count >= self.bytes_max
        progress.ended_early = enough or self.stop.asked
        return not progress.ended_early

    def _report(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Reports the table's offsets to the agents, unless they know them; of several tables of the topic
        those that all have come to."""
        job = self.session.job(self._cluster_id)
        try:
            offsets = offsets_of_all(job, topic, offsets)
        except ExportError:
            return  # Nobody knows of one table, whose own export says why; agents keep what they know.
        letters = self._letters(topic)
        known = self._reported.get(topic.topic_id, {})
        is_known = _without_zeros(known) == _without_zeros(offsets)
        if is_known and letters == self._reported_letters.get(topic.topic_id, {}):
            return
        try:
            source = table_source(job, topic, offsets)
            self.session.client.report_progress(topic, offsets, source, letters)
        except AgentError as error:
            if not self._reports_refused:
                self.session.progress.say(
                    f"the agents do not hear how far tables are: {told(error)}"
                )
            self._reports_refused = True
            return
        self._reports_refused = False
        self._reported[topic.topic_id] = dict(offsets)
        self._reported_letters[topic.topic_id] = letters

    def _letters(self, topic: Topic) -> dict[str, int]:
        """Of all tables of the topic, by reason, as they were last polled."""
        found: Counter[str] = Counter()
        for (name, _), numbers in self.numbers.topics.items():
            if name == topic.name:
                found.update(numbers.dlq_by_code)
        return dict(found)

    def _report_rollback(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Reports offsets that went back: the table was rolled back, reset, or is another one.
        Agents need to know before the table is filled again, or retention deletes what it lacks."""
        known = self._reported.get(topic.topic_id, {})
        behind = {one: offsets.get(one, 0) for one in known if offsets.get(one, 0) < known[one]}
        if behind:
            self._report(topic, {**offsets, **behind})

    def _print(self, text: str) -> None:
        self.session.progress.clear()
        self.output.write(text + "\n")
        self.output.flush()

    @contextmanager
    def _pinned(self, topics: Sequence[Table]) -> Iterator[Job]:
        """Yields a new run, whose chunks are pinned if there are topics."""
        job = self.session.job(self._cluster_id)
        if not topics:
            yield job
            return
        with self.session.pinned(job) as pin:
            yield job
        if pin.lost:
            self.session.progress.say(f"the pin could not be renewed: {pin.lost}")


def _without_zeros(offsets: Mapping[int, int]) -> dict[int, int]:
    """Drops offsets 0: of a partition without a report nothing is exported anyway."""
    return {partition: offset for partition, offset in offsets.items() if offset}


def sentence(report: ExportReport, *, ended_early: bool) -> str:
    """Returns what an export did, in one sentence."""
    if not report.commits:
        return f"{report.topic}: nothing new for table {report.table}"
    more = "; what is left comes with the next run" if ended_early else ""
    # An upsert has fewer rows than records: of each key the newest.
    into = "merged into" if report.upserts else f"in {report.files} files into"
    return f"{report.topic}: {report.rows} records {into} table {report.table}{_bad(report)}{more}{_rules(report)}"


def _rules(report: ExportReport) -> str:
    """Returns which rules did nothing, since their columns are named otherwise or are still to come."""
    if not report.rules_without_column:
        return ""
    paths = ", ".join(report.rules_without_column)
    return f"; frazil.iceberg.columns.* has rules for what no schema has: {paths}"


def _bad(report: ExportReport) -> str:
    """Returns how many records are not in the table, and why the first one is not."""
    parts = []
    if report.dead:
        parts.append(f"{report.dead} into its dead letters")
    if report.left_out:
        parts.append(f"{report.left_out} left out")
    if not parts:
        return ""
    return f", {' and '.join(parts)}" + (f" ({report.first_reason})" if report.first_reason else "")
