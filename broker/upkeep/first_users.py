"""The users that `first.users` names are made, where there never was a user.

So a cluster whose listeners all ask for a user can be begun. Once there was one, whoever it was, the
setting means nothing any more: users that were deleted do not come back with an agent's next start.
Several agents that start at once may each make them; the passwords are the same.
"""

import asyncio
import logging
from typing import Final

from broker.config.first_users import FirstUser
from broker.node import Node
from broker.sasl.scram_keys import BY_NAME, SALT_BITS, credential_of, salt_of, salted_password
from coordinator.commands.credential_commands import UpsertScramCredential
from coordinator.commands.entries import Rejected
from coordinator.commands.rights_commands import RIGHTS_LEVEL
from coordinator.log.metadata_log import LogError

logger = logging.getLogger(__name__)

WAIT_S: Final = 10.0


async def make(node: Node) -> None:
    """Make them, and wait for the log; an agent that cannot, says so and serves without them."""
    users = node.settings.first_users
    machine = node.log_client.machine
    incarnation = node.log_client.incarnation()
    if not users or not machine.credentials.is_untouched or incarnation is None:
        return
    if not machine.incarnations.all_support(RIGHTS_LEVEL):
        logger.warning("first.users waits: an agent of an older release is live")
        return
    commands = [await asyncio.to_thread(_credential, node, user) for user in users]
    try:
        async with asyncio.timeout(WAIT_S):
            outcomes = await asyncio.gather(
                *[node.log_client.propose(command, incarnation) for command in commands]
            )
    except (LogError, TimeoutError) as error:
        reason = str(error) or "no answer in time"
        logger.warning("the users of first.users are not made: %s", reason)
        return
    for command, outcome in zip(commands, outcomes, strict=True):
        if isinstance(outcome, Rejected):
            logger.warning("user %s of first.users is refused: %s", command.user, outcome.message)
        else:
            logger.info("user %s of first.users is made", command.user)


def _credential(node: Node, user: FirstUser) -> UpsertScramCredential:
    mechanism = BY_NAME[user.mechanism]
    salt = user.salt or salt_of(node.rng.getrandbits(SALT_BITS))
    salted = user.salted_password
    if salted is None:
        assert user.password is not None
        salted = salted_password(mechanism, user.password, salt=salt, iterations=user.iterations)
    return credential_of(user.name, mechanism, salted, salt=salt, iterations=user.iterations)
