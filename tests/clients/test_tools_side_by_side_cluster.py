"""Kafka's tools for a cluster as a whole, and Java's Admin method by method, beside Kafka itself."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.host import java
from tests.clients.kafka_tools import (
    BROKER_API_VERSIONS,
    CLUSTER,
    FEATURES,
    LEADER_ELECTION,
    METADATA_QUORUM,
    KafkaTools,
)
from tests.clients.side_by_side import Asked, Pair, Stories, created, plain, tell

pytestmark = pytest.mark.integration

ABSENT: Final = (
    "ShareGroupHeartbeat(76)",
    "ShareGroupDescribe(77)",
    "ShareFetch(78)",
    "ShareAcknowledge(79)",
    "AddRaftVoter(80)",
    "RemoveRaftVoter(81)",
    "InitializeShareGroupState(83)",
    "ReadShareGroupState(84)",
    "WriteShareGroupState(85)",
    "DeleteShareGroupState(86)",
    "ReadShareGroupStateSummary(87)",
    "StreamsGroupHeartbeat(88)",
    "StreamsGroupDescribe(89)",
    "DescribeShareGroupOffsets(90)",
    "AlterShareGroupOffsets(91)",
    "DeleteShareGroupOffsets(92)",
)
TELEMETRY: Final = ("GetTelemetrySubscriptions(71)", "PushTelemetry(72)")
"""Of Kafka only where a reporter of metrics takes them."""

QUORUM: Final = "| kafka-metadata-quorum | `describe` |"
CONTROLLERS: Final = "| kafka-metadata-quorum | `add-controller`, `remove-controller` |"
OTHER_FEATURES: Final = "| kafka-features | `describe`, `upgrade --release-version` |"
FIXED: Final = "| kafka-features | `downgrade`, `disable` |"
WORDS: Final = "| kafka-features | an unknown feature or level |"
FAILED: Final = (
    "The update failed for all features since the following feature had an error: Invalid update"
    " version "
)
RELEASE: Final = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""Levels of release 4.3."""
NOT_OURS: Final = (
    "eligible.leader.replicas.version",
    "kraft.version",
    "share.version",
    "streams.version",
)
REMOVES: Final = f"remove-controller --controller-id 7 --controller-directory-id {'A' * 21}Q"

STORIES: Stories = {
    "what each side serves": [
        Asked(
            BROKER_API_VERSIONS,
            "",
            "| kafka-broker-api-versions | |",
            kafka=(
                "\tAddPartitionsToTxn(24): 0 to 5 [usable: 5],",
                *(f"\t{api}: UNSUPPORTED," for api in TELEMETRY),
                *(f"\t{api}: * [usable: *" for api in ABSENT),
            ),
            frazil=(
                "\tAddPartitionsToTxn(24): 0 to 3 [usable: 3],",
                *(f"\t{api}: 0 [usable: 0]," for api in TELEMETRY),
                *(f"\t{api}: UNSUPPORTED*" for api in ABSENT),
            ),
        ),
    ],
    "the quorum": [
        Asked(
            METADATA_QUORUM,
            "--bootstrap-server @ describe --status",
            QUORUM,
            kafka=('CurrentVoters: [{"id": 1, "endpoints": ["CONTROLLER://HOST:*"]}]',),
            frazil=('CurrentVoters: [{"id": 1, "endpoints": ["PLAINTEXT://HOST:PORT"]}]',),
        ),
        Asked(
            METADATA_QUORUM,
            "--bootstrap-server @ describe --replication",
            QUORUM,
            kafka=("1 \t*\t* \t0 \tTIME \tTIME \tLeader",),
            frazil=("1 \tAAAAAAAAAAAAAAAAAAAAAA\t* \t0 \t-1 \t-1 \tLeader",),
        ),
        Asked(METADATA_QUORUM, "--bootstrap-server @ add-controller"),
        Asked(
            METADATA_QUORUM,
            f"--bootstrap-server @ {REMOVES}",
            CONTROLLERS,
            kafka=("*UnsupportedVersionException: Cluster doesn't support removing voter*",) * 3,
            frazil=("*UnsupportedVersionException: The node does not support REMOVE_RAFT_VOTER",)
            * 3,
        ),
    ],
    "elections": [
        *created("led", 2),
        Asked(LEADER_ELECTION, "--election-type preferred --topic led --partition 1"),
        Asked(LEADER_ELECTION, "--election-type unclean --topic led --partition 0"),
        Asked(LEADER_ELECTION, "--election-type preferred --topic led --partition 7"),
        Asked(LEADER_ELECTION, "--election-type preferred --topic nothing --partition 0"),
        Asked(LEADER_ELECTION, "--election-type preferred --all-topic-partitions"),
    ],
    "features": [
        Asked(
            FEATURES,
            "--bootstrap-server @ describe",
            OTHER_FEATURES,
            kafka=[f"Feature: {each} *" for each in NOT_OURS],
        ),
        Asked(FEATURES, "--bootstrap-server @ upgrade --feature transaction.version=2"),
        Asked(FEATURES, "--bootstrap-server @ upgrade --metadata 4.3-IV0"),
        Asked(
            FEATURES,
            "--bootstrap-server @ upgrade --feature transaction.version=9",
            WORDS,
            kafka=(f"Could not*{FAILED}9 for*. Local controller 1 only supports versions 0-2",),
            frazil=(f"Could not*{FAILED}9 for*. The agents only support versions 0-2",),
        ),
        Asked(
            FEATURES,
            "--bootstrap-server @ upgrade --release-version 4.3 --dry-run",
            OTHER_FEATURES,
            kafka=(*(f"{name} can be upgraded to {RELEASE[name]}." for name in RELEASE), "exit 0"),
            frazil=(
                *(
                    f"Can not upgrade {name} to {RELEASE[name]}. {FAILED}1 for feature *"
                    " The agents do not support this feature."
                    for name in RELEASE
                ),
                "7 out of 7 operation(s) failed.",
                "exit 1",
            ),
        ),
        Asked(FEATURES, "--bootstrap-server @ downgrade --feature transaction.version=1 --dry-run"),
        Asked(FEATURES, "--bootstrap-server @ disable --feature transaction.version --dry-run"),
        Asked(
            FEATURES,
            "--bootstrap-server @ downgrade --feature group.version=0 --dry-run",
            FIXED,
            kafka=("group.version can be downgraded to 0.", "exit 0"),
            frazil=(
                f"Can not downgrade*{FAILED}0 for feature group.version. Its level is always 1.",
                "1 out of 1 operation(s) failed.",
                "exit 1",
            ),
        ),
        Asked(
            FEATURES,
            "--bootstrap-server @ downgrade --metadata 4.0-IV3 --dry-run",
            FIXED,
            kafka=("Can not downgrade*: Unsupported metadata.version downgrade from 30 to 25.*",),
            frazil=("Can not downgrade*metadata.version. Its level is always 30.",),
        ),
        Asked(
            FEATURES,
            "--bootstrap-server @ disable --feature nothing.version --dry-run",
            WORDS,
            kafka=("Can not disable*. Feature nothing.version not found.",),
            frazil=("Can not disable*. The agents do not support this feature.",),
        ),
        Asked(FEATURES, "--bootstrap-server @ version-mapping"),
        Asked(
            FEATURES, "--bootstrap-server @ feature-dependencies --feature transaction.version=2"
        ),
    ],
    "the cluster and its brokers": [
        Asked(CLUSTER, "cluster-id --bootstrap-server @"),
        Asked(CLUSTER, "list-endpoints --bootstrap-server @"),
        Asked(CLUSTER, "list-endpoints --bootstrap-server @ --include-fenced-brokers"),
        Asked(CLUSTER, "list-endpoints --bootstrap-controller @"),
        Asked(CLUSTER, "unregister --bootstrap-server @ --id 77"),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_kafkas_tools_tell_of_an_agent_what_they_tell_of_kafka(
    story: str, tools: KafkaTools, beside: Pair, tmp_path: Path
) -> None:
    tell(tools, beside, tmp_path, STORIES[story])


DIFFERENT: Final = {
    "describeConfigs": "Frazil's own configs of topics are told, too",
    "incrementalAlterConfigs to nonsense": "other words for what is wrong with a value",
    "describeFeatures": "Kafka's other features",
    "updateFeatures of an unknown one": "agents, not the local controller, do not support it",
    "describeMetadataQuorum": "agents are the voters",
    "addRaftVoter": "absent",
    "removeRaftVoter": "absent",
    "describeShareGroups": "absent",
    "alterShareGroupOffsets": "absent",
    "listShareGroupOffsets": "absent",
    "deleteShareGroupOffsets": "absent",
    "deleteShareGroups": "absent",
    "describeStreamsGroups": "absent",
}
"""Methods of Admin whose results differ, and why."""


def admin_calls(bootstrap: str) -> dict[str, str]:
    """What each method of Java's Admin returns or raises, by its name."""
    done = subprocess.run(
        [*java("AdminCalls.java"), bootstrap],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = plain(done.stdout, bootstrap).splitlines()
    return dict(line.split("\t", 1) for line in lines)


def test_each_method_of_javas_admin_tells_of_an_agent_what_it_tells_of_kafka(beside: Pair) -> None:
    kafka, frazil = (admin_calls(bootstrap) for bootstrap in beside)
    assert "not called" not in kafka.values(), kafka
    assert kafka.keys() == frazil.keys()
    differ = {name for name in kafka if kafka[name] != frazil[name]}
    told = "\n".join(f"{name}\n  {kafka[name]}\n  {frazil[name]}" for name in sorted(differ))
    assert differ == DIFFERENT.keys(), told
    for name, why in DIFFERENT.items():
        is_refused = "UnsupportedVersionException: The node does not support" in frazil[name]
        assert is_refused == (why == "absent" and name != "deleteShareGroups"), name
