"""Commands of administrators by chance, most of which make sense: users, tokens, quotas, configs."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from coordinator.commands.config_commands import (
    AlterClientQuotas,
    ChangeConfigs,
    ConfigKind,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
    ReportUsage,
    UsageRow,
)
from coordinator.commands.credential_commands import (
    KEY_BYTES,
    ScramMechanism,
    UpsertScramCredential,
)
from coordinator.commands.entries import Command
from coordinator.commands.token_commands import (
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveDelegationTokens,
)

USERS = ("alice", "bob", "carol")


def credential(rng: random.Random) -> UpsertScramCredential:
    mechanism = rng.choice([*ScramMechanism])
    keys = [rng.randbytes(KEY_BYTES[mechanism]) for _ in range(2)]
    iterations = rng.choice([4095, 4096, 8192])
    return UpsertScramCredential(rng.choice(USERS), mechanism, iterations, b"salt", *keys)


def token(rng: random.Random) -> CreateDelegationToken:
    owner, requester, *renewers = [f"User:{rng.choice(USERS)}" for _ in range(rng.randrange(2, 5))]
    times = sorted(rng.randrange(1_000) for _ in range(3))
    return CreateDelegationToken(token_id(rng), owner, requester, tuple(renewers), *times)


def token_id(rng: random.Random) -> str:
    return f"token-{rng.randrange(8)}"


def extension(rng: random.Random) -> ExtendDelegationToken:
    return ExtendDelegationToken(token_id(rng), rng.randrange(1_000))


def quotas(rng: random.Random) -> AlterClientQuotas:
    changes = []
    for _ in range(rng.randrange(4)):
        kinds = rng.choice([(0,), (1,), (0, 1), (2,), (0, 2), ()])
        names = [rng.choice([None, *USERS, ""]) for _ in kinds]
        entity = tuple(map(EntityPart, map(EntityType, kinds), names))
        value = rng.choice([None, 0.0, 0.5, 1024.0])
        changes.append(QuotaChange(entity, rng.choice([*Quota]), value))
    return AlterClientQuotas(tuple(changes))


def configs(rng: random.Random) -> ChangeConfigs:
    names = sorted({rng.choice("abc") for _ in range(rng.randrange(3))})
    changes = tuple((name, rng.choice([None, "", "1"])) for name in names)
    return ChangeConfigs(rng.choice([*ConfigKind]), rng.choice(["", "0", "1"]), changes)


def usage(rng: random.Random) -> ReportUsage:
    rows = {
        (rng.choice([*Quota]), rng.choice(["", *USERS]), rng.choice(["", "app"]))
        for _ in range(rng.randrange(3))
    }
    return ReportUsage(tuple(UsageRow(*row, rng.choice([0.0, 0.5])) for row in sorted(rows)))


def removal(rng: random.Random) -> RemoveDelegationTokens:
    return RemoveDelegationTokens((token_id(rng),), rng.randrange(1_000))


DRAWN: Final[Mapping[type, Callable[[random.Random], Command]]] = {
    UpsertScramCredential: credential,
    CreateDelegationToken: token,
    ExtendDelegationToken: extension,
    RemoveDelegationTokens: removal,
    AlterClientQuotas: quotas,
    ChangeConfigs: configs,
    ReportUsage: usage,
}
