"""What an object store charges. Pure, and small: the command line shows it in its help."""

from typing import Final, NamedTuple

SOURCE: Final = "list prices of S3 Standard in us-east-1, November 2026"
MONTH_DAYS: Final = 365 / 12


class Prices(NamedTuple):
    """USD. Deleting costs nothing, nor does traffic within a region."""

    put_1000: float = 0.005
    """PUT and LIST requests."""
    get_1000: float = 0.0004
    gib_month: float = 0.023
    """The first 50 TB."""
