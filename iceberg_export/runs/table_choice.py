"""Which table is a topic's: by the exporter's settings, or by the topic's own, which may choose less."""

from pyiceberg.catalog import Catalog

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.errors import SettingsError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.settings import Settings
from iceberg_export.table import commit, topic_settings
from iceberg_export.table.catalog import Identifier, find_table, table_name
from iceberg_export.table.commit import RecreatedError
from iceberg_export.table.redactions import SUFFIX, is_redactions
from iceberg_export.table.state import CLUSTER_ID, FOLLOWS, TOPIC_ID
from iceberg_export.table.topic_settings import TopicTable


def choose_table(settings: Settings, catalog: Catalog, cluster_id: str, topic: Topic) -> Identifier:
    """Returns the table of a topic, by settings; of a re-created topic one of its own, if allowed.

    Raises RecreatedError when it is not, SettingsError for a table that the topic may not choose:
    the one that it has already it keeps.
    """
    topic_table = topic_settings.parse(topic.configs, topic.name)
    is_set = topic.name in settings.table_names and not topic.route
    identifier = _identifier(settings, topic, topic_table, topic.route)
    _check_routes(settings, topic, topic_table)
    own = identifier[0], f"{identifier[1]}_{topic.topic_id}"
    table = find_table(catalog, identifier)
    if table is None and _has_table(catalog, own, topic, cluster_id):
        # The table of the topic before it was dropped since. What this one has stays in one table.
        return own
    if table is not None:
        try:
            commit.check_owner(
                table, topic=topic.name, topic_id=topic.topic_id, cluster_id=cluster_id
            )
        except RecreatedError:
            if settings["topic.recreated"] != "new-table":
                raise
            identifier = own
        else:
            if FOLLOWS in table.metadata.properties:
                raise _name_error(topic, identifier[1], "dead letters")
            if is_redactions(table):
                raise _name_error(topic, identifier[1], "redactions")
            return identifier
    if not is_set:
        is_default = not (topic.route or topic_table.table)
        _check_choice(settings, topic, identifier, is_default=is_default)
    return identifier


def _has_table(catalog: Catalog, identifier: Identifier, topic: Topic, cluster_id: str) -> bool:
    """Tells whether there is a table of that name which was made from this very topic."""
    table = find_table(catalog, identifier)
    if table is None:
        return False
    told = table.metadata.properties
    return told.get(TOPIC_ID) == topic.topic_id and told.get(CLUSTER_ID) == cluster_id


def each_table(topic: Topic) -> list[Topic]:
    """Returns the topic once for each of its tables (`routes`), its own first. Raises SettingsError."""
    settings = topic_settings.parse(topic.configs, topic.name)
    return [topic._replace(route=route) for route in ("", *settings.routes)]


def _identifier(settings: Settings, topic: Topic, chosen: TopicTable, route: str) -> Identifier:
    if topic.name in settings.table_names and not route:
        return settings["table.namespace"], settings.table_names[topic.name]
    return chosen.identifier(settings["table.namespace"], table_name(topic.name), route)


def _check_routes(settings: Settings, topic: Topic, chosen: TopicTable) -> None:
    """Raises SettingsError when two tables of the topic would be one."""
    seen: set[Identifier] = set()
    for route in ("", *chosen.routes):
        identifier = _identifier(settings, topic, chosen, route)
        if identifier in seen:
            raise SettingsError(
                f"topic {topic.name} has table {'.'.join(identifier)} twice: route.tables names it, and so does"
                " another entry, or it is the topic's own (frazil.iceberg.table)"
            )
        seen.add(identifier)


def _name_error(topic: Topic, name: str, what: str) -> SettingsError:
    return SettingsError(
        f"topic {topic.name} may not have table {name}: so tables of {what} are called; set "
        f"table.name.{topic.name} to another name"
    )


def _check_choice(
    settings: Settings, topic: Topic, identifier: Identifier, *, is_default: bool
) -> None:
    """Raises SettingsError for a new table that is not the topic's to choose, by name or configs."""
    namespace, name = identifier
    if name.endswith(dead_letter_table.SUFFIX):
        raise _name_error(topic, name, "dead letters")
    if name.endswith(SUFFIX):
        raise _name_error(topic, name, "redactions")
    if is_default:
        return
    if not settings.allows_namespace(namespace):
        raise SettingsError(
            f"topic {topic.name} asks for a table in namespace {namespace} (frazil.iceberg.table, route.tables); the "
            f"exporter allows {settings['table.namespace']}, and what table.namespaces lists"
        )
    others = topic.with_default_tables - {topic.name}
    owner = next((one for one in sorted(others) if table_name(one) == name), None)
    if owner is not None and namespace == settings["table.namespace"]:
        raise SettingsError(
            f"topic {topic.name} asks for table {name} (frazil.iceberg.table, route.tables), which is that of topic "
            f"{owner}; set table.name.{topic.name} if it is to have it"
        )
