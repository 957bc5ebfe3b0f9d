"""A browser, and a cluster to look at."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.scene import Scene, scene
from tests.parts import install
from tests.parts.servers import EtcdServer, MinioServer

EVIL = "evil.example"
"""A name that leads to this machine, as the owner of any name can have it."""


# Of a module: as long as it is there, this thread has an event loop that runs.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=install.chromium(), args=[rules])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("shown"), etcd, minio) as it:
        yield it
