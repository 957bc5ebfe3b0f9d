"""What a log must never show its clients, and a checker of histories: `check`.

`history` (the format, and what follows from one), `records`, `order`, `cycles` (the anomalies),
`checker` (all of them). `verdicts.jsonl.gz`: 306 small histories, with what Jepsen's own checker
said about each, with and without write-write dependencies (names, histories and verdicts are
facts; `test_verdicts` compares).
"""

from tests.anomalies.checker import Anomaly, analyse, check
from tests.anomalies.history import Recorder

__all__ = ["Anomaly", "Recorder", "analyse", "check"]
