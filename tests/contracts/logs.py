"""Connections to one new log of each adapter, for the contract of MetadataLog."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import Endpoint, EtcdClient
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import MetadataLog
from coordinator.log.sqlite import SqliteLog

Connect = Callable[[], MetadataLog]
ADAPTERS = ["memory", "sqlite", pytest.param("etcd", marks=pytest.mark.integration)]
SHARED = [each for each in ADAPTERS if each != "sqlite"]
"""Those to which many are connected."""


def connects(request: pytest.FixtureRequest, tmp_path: Path, **settings: Any) -> Connect:
    """Of the adapter that is the fixture's parameter; the embedded one has a single connection."""
    if request.param == "memory":
        cluster = MemoryLogCluster(**settings)
        return lambda: MemoryLog(cluster)
    if request.param == "sqlite":
        only = SqliteLog(tmp_path / "log" / "frazil.sqlite", **settings)
        return lambda: only
    etcd = request.getfixturevalue("etcd")
    prefix = etcd.new_prefix()
    endpoints = [Endpoint.parse(each) for each in etcd.endpoints]
    return lambda: EtcdLog(EtcdClient(endpoints), prefix=prefix, cluster="c", **settings)


@asynccontextmanager
async def connections(connect: Connect, count: int) -> AsyncIterator[list[MetadataLog]]:
    """So many to the same log, for a minute at most."""
    made = [connect() for _ in range(count)]
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        for log in made:
            await log.aclose()


@asynccontextmanager
async def connection(connect: Connect) -> AsyncIterator[MetadataLog]:
    async with connections(connect, 1) as (log,):
        yield log
