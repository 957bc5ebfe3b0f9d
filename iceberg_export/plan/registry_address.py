"""Where the schema registry of the agents is: as an agent told it, and when nobody answers there, as another one tells it."""

from collections.abc import Callable

from iceberg_export.errors import AgentError
from iceberg_export.plan.agent_client import BEYOND_ALL, AgentClient
from iceberg_export.plan.trust import told_registry
from iceberg_export.settings import Settings


class RegistryAddress:
    """A topic's registry. Each agent tells its own, which dies with it; so whoever finds nobody there
    calls again."""

    def __init__(
        self, settings: Settings, agents: Callable[[], AgentClient], *, topic: str, told: str
    ) -> None:
        """`told`: where the agent's is that told of the topic; "": it has none."""
        self._settings = settings
        self._agents = agents
        self._topic = topic
        self._told = told
        self._is_asked = False

    def __call__(self) -> str:
        """Returns what was told with the topic, and from the second call on what an agent says that
        answers now. Raises SettingsError, PlanError."""
        if self._is_asked:
            self._told = self._ask() or self._told
        self._is_asked = True
        settings = self._settings
        return told_registry(settings.values, settings.agents, self._topic, self._told)

    def _ask(self) -> str:
        """Returns "" when no agent answers, too: that is another sentence's to say."""
        try:
            return self._agents().plan_by_name(self._topic, {}, others=BEYOND_ALL).registry
        except AgentError:
            return ""
