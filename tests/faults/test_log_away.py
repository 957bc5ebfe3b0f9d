"""A command that reads the log of an etcd that died, or that answers nothing, ends and says why."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.cli.log_machine import AwayError, machine_of
from coordinator.log.open_log import LogOptions, open_log
from protocol.fault_codes import FaultCode
from storage.stores.disk import DiskStore
from tests.kit.sockets import settings_of
from tests.parts.servers import EtcdServer

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("end", [EtcdServer.stop, lambda etcd: etcd.child.pause()])
def test_a_command_whose_etcd_is_away_ends_soon_and_closes_its_log(
    tmp_path: Path, end: object
) -> None:
    etcd = EtcdServer(tmp_path / "etcd")
    etcd.start()
    settings = settings_of(f"log=etcd://{etcd.endpoints[0]}{etcd.new_prefix()}")

    async def look() -> AwayError:
        store = DiskStore(tmp_path / "store")
        log = open_log(settings.log_url, LogOptions(), settings.cluster_id)
        async with aclosing(store), aclosing(log):
            assert await log.head() == 0
            end(etcd)
            with pytest.raises(AwayError) as ended:
                await machine_of(store, log, settings, tell=print, away_s_max=8)
        return ended.value

    begun_s = time.monotonic()
    try:
        away = asyncio.run(look())
        took_s = time.monotonic() - begun_s
    finally:
        etcd.child.kill()
    assert away.fault is FaultCode.ETCD_UNREACHABLE
    assert f"{settings.log_url} let nothing be read for 8 s: " in str(away)
    assert took_s < 16
