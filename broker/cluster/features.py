"""The cluster's features as clients and tools see them, and which changes of levels are right. Pure.

KIP-584 (features), KIP-1022 (several features, types of updates). Three are told: `group.version`
says that KIP-848 is served; `metadata.version` is told because tools derive Kafka's version from
it; `transaction.version` 2 lets clients use KIP-890, and is the only one whose level can change.

Errors are those of Kafka's controller, with its words where it has them: tools print them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from coordinator.tables.features import TRANSACTION_VERSION, TRANSACTION_VERSION_MAX, Features
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import FeatureUpdateKey

GROUP_VERSION: Final = "group.version"
GROUP_LEVEL: Final = 1
METADATA_VERSION: Final = "metadata.version"
METADATA_LEVEL: Final = 30
"""4.3-IV0."""

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
TYPES_SINCE: Final = 1
"""Version of UpdateFeatures; before it, a flag allowed a downgrade."""


class Range(NamedTuple):
    least: int
    most: int


SUPPORTED: Final[Mapping[str, Range]] = {
    GROUP_VERSION: Range(0, GROUP_LEVEL),
    METADATA_VERSION: Range(7, METADATA_LEVEL),  # 7: 3.3-IV3, the least that Kafka 4.3 knows.
    TRANSACTION_VERSION: Range(0, TRANSACTION_VERSION_MAX),
}


class FeatureUpdate(NamedTuple):
    """A level that somebody asks for."""

    feature: str
    level: int
    type: int


def levels(features: Features) -> dict[str, int]:
    """The finalized level of each feature."""
    return {
        GROUP_VERSION: GROUP_LEVEL,
        METADATA_VERSION: METADATA_LEVEL,
        TRANSACTION_VERSION: features.transaction_version,
    }


def feature_updates(updates: Iterable[FeatureUpdateKey], *, version: int) -> list[FeatureUpdate]:
    """Returns the updates that a request asks for; of a feature named twice, the first."""
    found: dict[str, FeatureUpdate] = {}
    for update in updates:
        kind = update.upgrade_type
        if version < TYPES_SINCE:
            kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        each = FeatureUpdate(update.feature, update.max_version_level, kind)
        found.setdefault(each.feature, each)
    return list(found.values())


def check(each: FeatureUpdate, current: Mapping[str, int]) -> None:
    """Raises KafkaError (INVALID_UPDATE_VERSION) for a level that the feature cannot go to."""
    reason = _refusal(each, current.get(each.feature, 0))
    if reason is not None:
        raise invalid(each, reason)


def invalid(each: FeatureUpdate, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {each.level} for feature {each.feature}. {reason}",
    )


def _refusal(each: FeatureUpdate, current: int) -> str | None:
    if each.type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if each.level < 0:
        return "A feature version cannot be less than 0."
    supported = SUPPORTED.get(each.feature)
    if supported is None:
        return "The agents do not support this feature."
    if not supported.least <= each.level <= supported.most:
        return f"The agents only support versions {supported.least}-{supported.most}"
    if each.level < current and each.type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if each.level > current and each.type != UPGRADE:
        return "Can't downgrade to a newer version."
    if each.level != current and each.feature != TRANSACTION_VERSION:
        return f"Its level is always {current}."
    return None
