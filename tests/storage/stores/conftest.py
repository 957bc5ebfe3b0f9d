"""What the stores' tests share."""

from collections.abc import Iterator
from functools import cache

import botocore.session
import pytest


@pytest.fixture(autouse=True, scope="package")
def one_description_of_s3() -> Iterator[None]:
    """A process reads botocore's description of S3 once, not for each store: that takes 0.2 s of CPU."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield
