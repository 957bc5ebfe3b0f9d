"""The level of an agent that knows commands about who clients are and what they may do."""

from typing import Final

RIGHTS_LEVEL: Final = 4
"""`feature_level_max` of an agent that can decode these commands. While one that cannot is live,
none is proposed: it would stop (P13)."""
