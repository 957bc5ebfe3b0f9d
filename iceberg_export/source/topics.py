"""Topics alone with the columns that their tables have: which, and how records come into them.

What a topic's own settings say about its table holds here as well, but no table is needed or
loaded. The columns are those of the schemas that are registered when a query is loaded, and
stay so, for a stream as long as it runs; its schemas are read again for every plan, so that
what newer ones write is decoded: of their new fields nothing is shown, and what does not fit
is a bad record. Tasks ask nobody.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from iceberg_export.errors import PlanError, SettingsError
from iceberg_export.plan.agent_client import BEYOND_ALL, AgentClient
from iceberg_export.plan.registry_address import RegistryAddress
from iceberg_export.plan.splits import TopicPlan
from iceberg_export.source.read_options import FAIL, KEEP, ReadOptions
from iceberg_export.source.tasks import Decoding
from iceberg_export.table import topic_settings
from iceberg_export.table.column_rules import rules_properties
from iceberg_export.table.topic_settings import TopicTable
from iceberg_export.typed.registry_client import RegistryClient, RegistryError


class TopicColumns(NamedTuple):
    """The columns of a topic when a query was loaded."""

    settings: TopicTable
    columns: pa.Schema
    """Those that a new table of the topic would have."""
    without_rules: pa.Schema
    """The same by the exporter's names."""


def topic_columns(options: ReadOptions, client: AgentClient) -> TopicColumns | None:
    """Returns the columns of a topic; None when keys and values are read as bytes. Raises ExportError."""
    if not options.typed:
        return None
    plan = client.plan_by_name(options.topic, {}, others=BEYOND_ALL)
    settings = topic_settings.parse(plan.configs, options.topic)
    if not settings.typed:
        return None
    if "infer" in (settings.value_schema, settings.key_schema):
        raise SettingsError(
            f"topic {options.topic}: its columns are inferred, and its table has them: read that with "
            "option table, or the topic with typed=false"
        )
    # PyIceberg takes longer to load than a small topic to be read.
    from iceberg_export.table.schema import arrow_schema, table_schema
    from iceberg_export.typed.topic_types import TopicTypes

    try:
        types = TopicTypes(settings, registry(options, plan, lambda: client), assumes_first=True)
    except RegistryError as error:
        raise RegistryError(f"{error}; typed=false reads keys and values as they are") from error
    types.check_newest()
    ruled, plain = types.columns(), types.columns_without_rules()
    return TopicColumns(settings, *(arrow_schema(table_schema(one)) for one in (ruled, plain)))


def registry(
    options: ReadOptions, plan: TopicPlan, agents: Callable[[], AgentClient]
) -> RegistryClient:
    """Returns the registry that the options name, or the agent that made the plan; while nobody answers
    there, another agent."""
    settings = options.settings
    told = RegistryAddress(settings, agents, topic=plan.topic, told=plan.registry)
    return RegistryClient(settings.values, told=told, sleep=time.sleep)


class TopicDecoding:
    """How the records of one query come into its columns, plan by plan."""

    def __init__(
        self,
        options: ReadOptions,
        loaded: TopicColumns | None,
        agents: Callable[[], AgentClient],
    ) -> None:
        self._options = options
        self._loaded = loaded
        self._agents = agents
        self._registry: RegistryClient | None = None
        self._told = ""
        """Where it is, by the agent that was asked last: another one has its own."""

    def __call__(self, plan: TopicPlan) -> Decoding:
        """Returns what tasks of a plan need. Raises ExportError."""
        mode = self._options.mode
        decoding = Decoding(fails=mode == FAIL, keeps=mode == KEEP, topic=plan.topic)
        if self._loaded is None:
            return decoding
        now = topic_settings.parse(plan.configs, plan.topic)
        if _shape(now) != _shape(self._loaded.settings):
            raise PlanError(
                f"the modes, the layout, the rules for columns or the own schema of topic {plan.topic} have changed since its columns were "
                "told; load it again"
            )
        from iceberg_export.typed.topic_types import TopicTypes

        if self._registry is None or self._told != plan.registry:
            self._registry = registry(self._options, plan, self._agents)
            self._told = plan.registry
        types = TopicTypes(now, self._registry, assumes_first=True)
        _columns, typing = types.read_typing(
            self._loaded.without_rules, types.rules, rules_properties(now.column_rules)
        )
        return decoding._replace(typing=typing)


def _shape(settings: TopicTable) -> tuple[object, ...]:
    own = (settings.value_schema_json, settings.key_schema_json)
    modes = (settings.value_mode, settings.key_mode, settings.layout, settings.envelope_form)
    return (
        *modes,
        settings.column_rules,
        *(own if "inline" in (settings.value_schema, settings.key_schema) else ()),
    )
