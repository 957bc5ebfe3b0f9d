"""The targets, by name."""

from tests.fuzz.target import Target
from tests.fuzz.targets.agent import Agent
from tests.fuzz.targets.batches import Batches
from tests.fuzz.targets.bearer import Bearer
from tests.fuzz.targets.commands import Commands, Machines
from tests.fuzz.targets.frames import Frames
from tests.fuzz.targets.http import Http
from tests.fuzz.targets.logins import Logins
from tests.fuzz.targets.objects import Objects
from tests.fuzz.targets.sasl import Sasl
from tests.fuzz.targets.schemas import Schemas
from tests.fuzz.targets.snapshots import Snapshots
from tests.fuzz.targets.telemetry import Telemetry
from tests.fuzz.targets.tls import Tls
from tests.fuzz.targets.values import Values

_ALL = (
    *(Frames, Agent, Logins, Tls, Batches, Http, Sasl, Bearer, Telemetry),
    *(Schemas, Values, Commands, Machines, Snapshots, Objects),
)
TARGETS: dict[str, type[Target]] = {target.name: target for target in _ALL}
