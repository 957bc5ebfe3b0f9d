"""`python -m tests.coordinator.golden` adds what is not kept yet; see the package."""

from tests.coordinator.golden import add_missing

add_missing()
