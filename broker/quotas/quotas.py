"""What clients use up at this agent, against the table of quotas (KIP-13, 124, 546, 599, 612). Pure.

Where the table is empty nobody is asked anything, and a call has no `Usage`. Else a client, that is a
principal with a client id, is looked up once for each version of the table. Requests are counted when
they are answered, Produce when it begins: bytes as they came, records of Fetch as they leave, and the
time on the loop until then as percents of one core; what it takes after that is counted, and throttles the
next one. The answer says for how long the client waits, and the edge does not read from it so long
(`broker.edge.muting`).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.quotas.entities import address_quota, quota_of, told_name
from broker.quotas.rates import SECOND_MS, THROTTLE_MS_MAX, Window
from broker.quotas.sensors import AnySensor, BucketSensor, Sensor, Sensors
from coordinator.commands.config_commands import Quota
from coordinator.tables.administration.client_quotas import ClientQuotas
from protocol.errors import ErrorCode, KafkaError
from protocol.types import POSITION_ZERO

CLIENTS_MAX: Final = 10_000
PERCENT_PER_NS: Final = 100 / 1e9
"""Of a second of the loop."""
ANY_BYTES: Final = 1 << 62
_PRINCIPAL_TYPE: Final = "User:"


class Client(NamedTuple):
    """What counts for a principal with a client id. None: no such quota holds for it."""

    produce: Sensor | None = None
    fetch: Sensor | None = None
    request: Sensor | None = None
    mutations: BucketSensor | None = None


UNBOUNDED: Final = Client()


class Quotas:
    """All clients of an agent."""

    def __init__(
        self,
        table: ClientQuotas,
        *,
        window: Window,
        controller_window: Window,
        boot_ms: Callable[[], int],
        loop_ns: Callable[[], int],
    ) -> None:
        """`loop_ns`: a clock that is fine enough for the steps of the loop."""
        self.table = table
        self.sensors = Sensors(window, controller_window)
        self.window = window
        self.boot_ms = boot_ms
        self.loop_ns = loop_ns
        self._version = POSITION_ZERO
        self._clients: dict[tuple[str, str], Client] = {}

    def usage(self, principal: str, client_id: str | None) -> "Usage | None":
        """Of a request that begins; None: no quota holds for its client."""
        client = self._client(principal, told_name(client_id))
        return None if client is UNBOUNDED else Usage(self, client)

    def connection_delay_ms(self, address: str) -> int:
        """One more connection of the address has come: in how many ms it is let in."""
        now_ms = self.boot_ms()
        found = address_quota(self.table, address)
        if found is None:
            return 0
        self.expire(now_ms)
        sensor = self.sensors.get(Quota.CONNECTION_CREATION_RATE, found, now_ms)
        assert isinstance(sensor, BucketSensor)
        sensor.take(1, now_ms)
        delay_ms = sensor.throttle_ms(now_ms)
        sensor.tell(delay_ms, now_ms)
        return delay_ms

    def _client(self, principal: str, client_id: str) -> Client:
        if self._version != self.table.version:
            self._version = self.table.version
            self._clients.clear()
        key = (principal, client_id)
        found = self._clients.get(key)
        if found is None:
            now_ms = self.boot_ms()
            self.expire(now_ms)
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            found = self._clients[key] = self._resolve(principal, client_id, now_ms)
        return found

    def expire(self, now_ms: int) -> None:
        """Forget sensors that were not used for long."""
        if self.sensors.sweep(now_ms):
            self._clients.clear()  # Nobody goes on with what is forgotten.

    def _resolve(self, principal: str, client_id: str, now_ms: int) -> Client:
        user = told_name(principal.removeprefix(_PRINCIPAL_TYPE))

        def sensor(quota: Quota) -> AnySensor | None:
            found = quota_of(self.table, quota, user=user, client_id=client_id)
            return None if found is None else self.sensors.get(quota, found, now_ms)

        def rate(quota: Quota) -> Sensor | None:
            found = sensor(quota)
            assert not isinstance(found, BucketSensor)
            return found

        mutations = sensor(Quota.CONTROLLER_MUTATION_RATE)
        assert not isinstance(mutations, Sensor)
        client = Client(
            rate(Quota.PRODUCER_BYTE_RATE),
            rate(Quota.CONSUMER_BYTE_RATE),
            rate(Quota.REQUEST_PERCENTAGE),
            mutations,
        )
        return UNBOUNDED if client == UNBOUNDED else client


class Usage:
    """What one request uses up."""

    __slots__ = ("_begun_ns", "_client", "_mutation", "_quotas", "_spent_ns", "_wait_ms")

    def __init__(self, quotas: Quotas, client: Client) -> None:
        self._quotas = quotas
        self._client = client
        self._begun_ns = 0
        """Of the step that the loop does for it; 0: it does none."""
        self._spent_ns = 0
        """In steps that have ended, and were not counted yet."""
        self._wait_ms: int | None = None
        """What the answer told; None: it is not answered."""
        self._mutation = (0, 0)
        """For how many ms its mutations make it wait, and from when on."""

    # Steps of the loop.

    @property
    def is_timed(self) -> bool:
        """Whether anybody asks how long they take."""
        return self._client.request is not None

    def begin(self) -> None:
        """The loop works on the request from now on."""
        if self._client.request is not None and not self._begun_ns:
            self._begun_ns = self._quotas.loop_ns()

    def end(self) -> None:
        """It works on something else."""
        if self._begun_ns:
            self._spent_ns += self._quotas.loop_ns() - self._begun_ns
            self._begun_ns = 0
            request = self._client.request
            if self._wait_ms is not None and request is not None:
                request.owe(self._take_percents())

    # What handlers say.

    @property
    def fetch_bytes_max(self) -> int:
        """More in one answer would be over the quota by itself, by what may come at once."""
        if self._client.fetch is None:
            return ANY_BYTES
        return max(1, int(self._client.fetch.quota * self._quotas.window.sample_ms / SECOND_MS))

    def producing(self, byte_count: int) -> int:
        """A Produce request of so many bytes begins; for how many ms its client will wait, as things
        are now."""
        sensor = self._client.produce
        return 0 if sensor is None else sensor.record(byte_count, self._quotas.boot_ms())

    def mutate(self, partitions: int, *, strict: bool) -> None:
        """So many partitions are to be made or deleted. Not `strict`: they are, whatever the quota.

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED).
        """
        sensor = self._client.mutations
        if sensor is None:
            return
        now_ms = self._quotas.boot_ms()
        if strict and (over_ms := sensor.throttle_ms(now_ms)):
            self._mutation = (over_ms, now_ms)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        sensor.take(partitions, now_ms)
        if not strict:
            self._mutation = (sensor.throttle_ms(now_ms), now_ms)

    # Answers: for how many ms the client waits.

    def produced(self) -> int:
        """The answer to a Produce request leaves."""
        now_ms = self._quotas.boot_ms()
        sensor = self._client.produce
        wait_ms = 0
        if sensor is not None and (wait_ms := sensor.throttle_ms(now_ms)):
            sensor.tell(wait_ms, now_ms)
        return self._told(max(wait_ms, self._request_ms(now_ms)))

    def fetched(self, byte_count: int) -> int:
        """A fetch is to be answered with so many bytes of records; more than 0: it must be answered
        without, and they are not counted.

        Whoever has not overdrawn its quota gets all of them; who comes next waits for that.
        """
        now_ms = self._quotas.boot_ms()
        sensor = self._client.fetch
        request_ms = self._request_ms(now_ms)
        if sensor is None:
            return self._told(request_ms)
        wait_ms = sensor.throttle_ms(now_ms)
        if wait_ms:
            sensor.tell(wait_ms, now_ms)
        elif not request_ms:
            sensor.record(byte_count, now_ms)
        return self._told(max(wait_ms, request_ms))

    def answered(self) -> int:
        """Any other request is answered; asked again, it says the same."""
        if self._wait_ms is not None:
            return self._wait_ms
        now_ms = self._quotas.boot_ms()
        mutation_ms, since_ms = self._mutation
        wait_ms = max(0, mutation_ms - (now_ms - since_ms))
        if wait_ms and self._client.mutations is not None:
            self._client.mutations.tell(wait_ms, now_ms)
        return self._told(max(wait_ms, self._request_ms(now_ms)))

    def _told(self, wait_ms: int) -> int:
        self._wait_ms = min(wait_ms, THROTTLE_MS_MAX)
        return self._wait_ms

    def _request_ms(self, now_ms: int) -> int:
        request = self._client.request
        if request is None:
            return 0
        if self._begun_ns:
            now_ns = self._quotas.loop_ns()
            self._spent_ns += now_ns - self._begun_ns
            self._begun_ns = now_ns
        if wait_ms := request.record(self._take_percents(), now_ms):
            request.tell(wait_ms, now_ms)
        return wait_ms

    def _take_percents(self) -> float:
        spent_ns, self._spent_ns = self._spent_ns, 0
        return spent_ns * PERCENT_PER_NS
