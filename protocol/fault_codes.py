"""What can go wrong that a person must mend: codes, and for each what it means and what to do. Pure.

One table. Where a sentence is told (standard error, the log, an HTTP answer) its code stands beside it; `docs/errors.md`
is generated from the table (`broker.reports.error_page`), and `frazil explain` prints it.

What holds: a code comes with the error (its class, or itself), or with the sentence, never from its words; no error's
text has the code in it, so that whoever prints it adds it once (`told`). What Kafka's protocol tells clients keeps
Kafka's codes (`protocol.errors`), and what they mean to a person is here.
"""

from enum import StrEnum
from typing import Final, NamedTuple, Self

from protocol.errors import ErrorCode, KafkaError


class FaultCode(StrEnum):
    """A code is a noun, and never means something else later."""

    PORT_TAKEN = "port-taken"
    DATA_FOLDER_DENIED = "data-folder-denied"
    DATA_FOLDER_IN_USE = "data-folder-in-use"
    DISK_FULL = "disk-full"
    ETCD_UNREACHABLE = "etcd-unreachable"
    ETCD_REFUSED = "etcd-refused"
    STORE_UNREACHABLE = "store-unreachable"
    STORE_DENIED = "store-denied"
    CLOCK_SKEW = "clock-skew"
    OBJECT_LOST = "object-lost"
    OTHER_CLUSTER = "other-cluster"
    OLDER_LOG = "older-log"
    VERSION_MISMATCH = "version-mismatch"
    NODE_NAME_TAKEN = "node-name-taken"
    ADVERTISED_UNREACHABLE = "advertised-unreachable"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    LOGIN_FAILED = "login-failed"
    TLS_FAILED = "tls-failed"
    MEMORY_SHORT = "memory-short"
    UNKNOWN_SETTING = "unknown-setting"
    WRONG_VALUE = "wrong-value"


class Fault(NamedTuple):
    """What stands behind a code."""

    means: str
    clients: str
    """What they notice: what goes on, and what is refused with which of Kafka's codes."""
    steps: tuple[str, ...]
    """What to do, in order; commands in backticks."""


class FaultError(Exception):
    """An error that may have a code: its class's, its own, or its sentence's."""

    fault: FaultCode | None = None

    def __init__(self, sentence: str = "", *, fault: FaultCode | None = None) -> None:
        super().__init__(sentence)
        own = fault_of(sentence) if fault is None else fault
        if own is not None:
            self.fault = own

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Says what another error says, with its code."""
        return cls(str(error), fault=fault_of(error))


class Sentence(str):
    """What went wrong, with its code, where there is no error that has it."""

    __slots__ = ("fault",)
    fault: FaultCode | None

    def __new__(cls, text: str, fault: FaultCode | None) -> Self:
        sentence = super().__new__(cls, text)
        sentence.fault = fault
        return sentence


_OF_KAFKA: Final = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: FaultCode.LOGIN_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: FaultCode.LOGIN_FAILED,
    ErrorCode.ILLEGAL_SASL_STATE: FaultCode.LOGIN_FAILED,
    ErrorCode.UNSUPPORTED_VERSION: FaultCode.VERSION_MISMATCH,
}
"""Those of Kafka's codes that say by themselves what somebody must mend."""


def fault_of(what: BaseException | str | None) -> FaultCode | None:
    """The code of an error, or else of what caused it; that of a sentence."""
    while isinstance(what, BaseException):
        fault = _OF_KAFKA.get(what.code) if isinstance(what, KafkaError) else None
        if isinstance(what, FaultError):
            fault = what.fault
        if fault is not None:
            return fault
        what = what.__cause__
    return what.fault if isinstance(what, Sentence) else None


def told(what: BaseException | str) -> str:
    """The sentence for people, which ends in its code."""
    fault = fault_of(what)
    return str(what) if fault is None else f"{what} [{fault}]"


def coded(what: BaseException | str | None) -> dict[str, str]:
    """The field of a log line (its `extra`), or of an answer in JSON; none without a code."""
    fault = fault_of(what)
    return {} if fault is None else {"code": fault.value}


_AGENT_ENDS: Final = "An agent that meets it at its start does not start, and no client hears of it: others of the cluster go on."
_COMMAND_ENDS: Final = (
    "Nobody else notices: the command, or the agent, ends before it does anything."
)

FAULTS: Final[dict[FaultCode, Fault]] = {
    FaultCode.PORT_TAKEN: Fault(
        "Another process listens at a port that the agent is to have.",
        _AGENT_ENDS + " Whoever connects to that port talks to the other process.",
        (
            "See who has it: `ss -ltnp 'sport = :9092'`. It is often an agent that still runs.",
            "End that process, or choose another port: `frazil dev --port 9192`, else the setting that the sentence names.",
            "See that all ports are free: `frazil doctor --config FILE`.",
        ),
    ),
    FaultCode.DATA_FOLDER_DENIED: Fault(
        "The folder of the object store, of the log or of `frazil dev` cannot be made, read or written: this user has no"
        " right to it, the file system is read-only, or something else has its place.",
        _AGENT_ENDS
        + " Where it comes later, what needs the folder is refused: Produce with KAFKA_STORAGE_ERROR.",
        (
            "Look who owns it: `ls -ld FOLDER`, and as whom the agent runs: `id`.",
            (
                "Give the right to that user: `chown -R USER FOLDER`; in Kubernetes `securityContext.fsGroup`. A volume that is"
                " mounted read-only is mounted anew."
            ),
            "Or choose another folder: `frazil dev --data FOLDER`, else the settings `store` and `log`.",
        ),
    ),
    FaultCode.DATA_FOLDER_IN_USE: Fault(
        "Another process has the embedded log (SQLite), which serves one agent.",
        "The agent that has it serves its clients as before; the second one does not start.",
        (
            "See who has it: `fuser FOLDER/log.db.lock`. It is often a `frazil dev` that still runs.",
            "End that one, or give this one a folder of its own: `frazil dev --data FOLDER --port 0`.",
            "Several agents need etcd and an object store that all reach: the settings `log` and `store`.",
        ),
    ),
    FaultCode.DISK_FULL: Fault(
        "The disk, or this user's quota of it, has no room for the object store or the embedded log; or a file may not become"
        " as large as it has to (`ulimit -f`).",
        "Records that are there are read. Produce is refused: KAFKA_STORAGE_ERROR where the store is full,"
        " REQUEST_TIMED_OUT or NOT_ENOUGH_REPLICAS where the log is. Nothing that was acknowledged is lost.",
        (
            "See what is full: `df -h FOLDER`, `df -i FOLDER`, `quota`, `ulimit -f`.",
            "Make room, outside of the folder: nothing in it is superfluous. Agents go on by themselves.",
            (
                "Have less kept: `frazil topic alter TOPIC --set retention.ms=86400000`, then `frazil job run retention` and"
                " `frazil job run collect`. `frazil cost` says which topics hold most."
            ),
        ),
    ),
    FaultCode.ETCD_UNREACHABLE: Fault(
        "No member of etcd answers, or etcd has no leader; TLS that does not come about looks the same.",
        "Connections live, and records below the known end are read. A fetch at the end is sent elsewhere"
        " (NOT_LEADER_OR_FOLLOWER) after 10 s. What changes something hears a retriable error: Produce REQUEST_TIMED_OUT or"
        " NOT_ENOUGH_REPLICAS, groups COORDINATOR_LOAD_IN_PROGRESS. An agent that starts waits, and refuses connections"
        " meanwhile. All goes on by itself when etcd is back.",
        (
            (
                "Ask etcd from the agent's machine: `etcdctl --endpoints HOST:2379 endpoint status -w table`; of its members"
                " more than half must live."
            ),
            "Compare the setting `log` with where etcd listens; TLS needs `etcds://` and `log.ca`.",
            "See the way there (firewall, network policy, name): `nc -vz HOST 2379`. Then `frazil doctor --config FILE`.",
        ),
    ),
    FaultCode.ETCD_REFUSED: Fault(
        "etcd answers and says no: wrong user or password, no right to the keys, or a database that has reached its quota"
        " (NOSPACE).",
        "As when etcd is away: what is there is read, changes are refused retriably. An agent that is refused for good at"
        " its start ends.",
        (
            (
                "Wrong login: compare `log.user` and `log.password` (or `log.password.file`) with `etcdctl user list`; the user"
                " needs readwrite on the prefix of `log`: `etcdctl role grant-permission ROLE readwrite /frazil/ --prefix=true`."
            ),
            (
                "Quota: `etcdctl endpoint status -w table` shows NOSPACE; `etcdctl compact REVISION`, `etcdctl defrag`, `etcdctl"
                " alarm disarm`. Agents go on by themselves."
            ),
            (
                "So that it does not come again: a greater `--quota-backend-bytes`, no `log.compact=false`, and the job snapshot"
                " (`frazil job list`)."
            ),
        ),
    ),
    FaultCode.STORE_UNREACHABLE: Fault(
        "The object store does not answer, or says that it cannot just now (5xx, too many requests).",
        "PUTs are repeated; what is not taken within 20 s is refused: Produce KAFKA_STORAGE_ERROR, or REQUEST_TIMED_OUT when"
        " the client's time is up before. Reads from memory go on, others get KAFKA_STORAGE_ERROR. Readiness says no, so that"
        " clients are sent to agents that reach it. An agent that starts waits.",
        (
            "Ask it from the agent's machine: `curl -v ENDPOINT`; for a folder on the network: `ls FOLDER`.",
            "Compare `store`, `store.endpoint`, `store.region` and `store.ca` with where the store is.",
            (
                "See the way there (firewall, network policy, proxy, name), then `frazil doctor --config FILE`. Agents go on by"
                " themselves."
            ),
        ),
    ),
    FaultCode.STORE_DENIED: Fault(
        "The object store answers and says no: no credentials or wrong ones, a right that is missing, no such bucket, a"
        " wrong region.",
        "Produce is refused with KAFKA_STORAGE_ERROR, and what is not in memory cannot be read. An agent that meets it at its"
        " start ends. Where only the right to delete is missing, clients notice nothing, and objects stay.",
        (
            (
                "Look what it says in the sentence: AccessDenied is a right, SignatureDoesNotMatch a wrong secret, NoSuchBucket"
                " a bucket that is not there, AuthorizationHeaderMalformed or PermanentRedirect a wrong region."
            ),
            (
                "Set `store.access.key` and `store.secret.key`, or what AWS's tools find: `aws sts get-caller-identity`. In the"
                " bucket s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket are needed."
            ),
            (
                "Make the bucket (`aws s3 mb s3://BUCKET`), or set `store` and `store.region`; then `frazil doctor --config"
                " FILE`."
            ),
        ),
    ),
    FaultCode.CLOCK_SKEW: Fault(
        "This machine's clock differs from the object store's.",
        "Clients notice nothing up to 15 minutes: what retention deletes by is the earlier of the clocks, so records may"
        " live longer. Beyond that S3 refuses signed requests, and it is as if the store refused"
        " (`store-denied`). Tokens of OAUTHBEARER and certificates are judged by this clock, too.",
        (
            "Compare: `date -u`, and `curl -sI ENDPOINT | grep -i ^date`.",
            "Set up NTP: `timedatectl set-ntp true`, `chronyc makestep`. On a virtual machine look at its host's clock.",
            (
                "Once it is right an agent that runs goes on by itself; one that ended at its start is to be started again. The time"
                " of signatures is not corrected by the store's."
            ),
            "The agent measures each hour, and when it starts; `frazil doctor --config FILE` does it now.",
        ),
    ),
    FaultCode.OBJECT_LOST: Fault(
        "The metadata log points at an object that is not in the store any more, or that has other bytes: somebody or"
        " something else deleted it (a lifecycle rule of the bucket, a clean-up by hand), or the disk lost it.",
        "Who reads offsets that lie in it hears KAFKA_STORAGE_ERROR, and stands still there. All else goes on: other offsets,"
        " other partitions, Produce, the jobs.",
        (
            (
                "See what is lost: `frazil check --config FILE`, with topics, partitions and offsets; `frazil check --deep` reads"
                " everything, too. Of an embedded log that a running agent has, that agent is asked: `frazil check --agent http://HOST:PORT`."
            ),
            "Find out who deletes there, and end it: nobody but agents may delete below the store's prefix, and no lifecycle rule.",
            (
                "Put the object back where a copy is to be had: an older version that the bucket keeps, a replica, a backup. Then all"
                " is as before, without a restart."
            ),
            (
                "Else `frazil check --repair --agent http://HOST:PORT` declares the offsets lost: consumers go on behind them. There"
                " is no way back."
            ),
        ),
    ),
    FaultCode.OTHER_CLUSTER: Fault(
        "The object store or the metadata log belongs to another cluster, or to an earlier log of this one: one of the two"
        " settings points elsewhere than it did.",
        _AGENT_ENDS + " Nothing was changed in the store or the log.",
        (
            "Read whose they are: `cluster.json` and `log.json` in the store; the sentence names both sides.",
            "Set `store`, `log` and `cluster.id` to what the other agents of the cluster have.",
            (
                "Where the log was lost, or the store is a copy of the cluster's: `frazil recover --dry-run --config FILE` says"
                " what is left of it."
            ),
            (
                "For a new cluster: an empty prefix (`s3://BUCKET/OTHER`), and another `cluster.id` or prefix in etcd. Never"
                " delete `cluster.json` or `log.json` to get past it: two clusters would write among each other's records."
            ),
        ),
    ),
    FaultCode.OLDER_LOG: Fault(
        "The metadata log is older than the object store, or was set back under a running agent: a backup or a copy was put"
        " back, or etcd was replaced.",
        "Agents that notice it end, and acknowledge and delete nothing any more: served from an older log, offsets would be"
        " given to other records.",
        (
            "Delete nothing from the store: what the log lacks lies only there.",
            "Put the newest state of the log back (etcd's members or newest snapshot; `log.db` with `log.db-wal`).",
            "Start the agents again: they compare log and store. `frazil doctor --config FILE` does it without an agent.",
            (
                "Where no newer state is left, begin the log anew from the store: `frazil recover --dry-run --config FILE`"
                " says first what that keeps."
            ),
        ),
    ),
    FaultCode.VERSION_MISMATCH: Fault(
        "What is stored, or asked for, is of another release: a format newer than this one reads, a feature level that an"
        " agent of the cluster does not have yet, an agent too old for the level that is finalised, or a cluster that serves"
        " no version of a request that this tool knows.",
        "An agent that cannot read what is stored ends, and others go on. What older agents would not understand is refused"
        " (UNSUPPORTED_VERSION) until all live agents are of the new release; records are produced and read meanwhile.",
        (
            "See which release each agent has: `frazil feature describe`, `frazil --version`.",
            "Bring all agents to the newer release, one after another. Older ones cannot come back once it has written.",
            "For a feature that is not finalised: `frazil feature upgrade --feature transaction.version=2`, when all agents are of it.",
        ),
    ),
    FaultCode.NODE_NAME_TAKEN: Fault(
        "Another agent of the cluster was started under this one's name, so this one ends.",
        "They are sent to the new agent. Nothing that was acknowledged is lost; of what was under way clients hear"
        " retriable errors.",
        (
            (
                "See who is there: `frazil cluster describe --bootstrap HOST:PORT`. Two that end each other in turn have the same"
                " name."
            ),
            (
                "Give each a `node.name` of its own, or leave it out: then it is the advertised address of the first listener,"
                " which has to differ."
            ),
        ),
    ),
    FaultCode.ADVERTISED_UNREACHABLE: Fault(
        "Where clients are told to find an agent it is not: nobody answers at its advertised address, or another cluster"
        " does.",
        "Clients reach the bootstrap address, are told the advertised one, and hang or fail there: what they tell is a"
        " connection that cannot be set up, or UNKNOWN_TOPIC_OR_PARTITION from the other cluster.",
        (
            "Read what clients are told: `frazil cluster describe --bootstrap HOST:PORT`.",
            (
                "Set `advertised.listeners` (or `advertise`) to host and port by which clients reach this agent, from where they"
                " are: no `localhost`, no name or port that only the container knows."
            ),
            "Try it from there: `nc -vz HOST PORT`. `frazil doctor --config FILE` tries it beside the running agent.",
        ),
    ),
    FaultCode.CLUSTER_UNREACHABLE: Fault(
        "No agent, or no schema registry, answers where a command asks, by Kafka's protocol or HTTP.",
        "Nothing follows from it; other clients with the same address hear the same.",
        (
            "See that an agent runs: `curl http://127.0.0.1:9094/health/ready` says why it does not serve yet.",
            (
                "Compare the address: `--bootstrap`, `bootstrap.servers` of `--command-config`, the context in use (`frazil context"
                " list`); for HTTP `--agent` and `--registry`."
            ),
            "Of a listener with TLS the command needs `security.protocol` in the file of `--command-config`.",
        ),
    ),
    FaultCode.LOGIN_FAILED: Fault(
        "Who logs in is not believed: wrong user, password or token, a mechanism that the listener does not have, or none"
        " where one is needed.",
        "The connection is closed after SASL_AUTHENTICATION_FAILED (UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE); HTTP"
        " answers 401. Those who have logged in go on.",
        (
            (
                "Compare `sasl.mechanism` and `sasl.jaas.config` in the file of `--command-config` with the listener's"
                " `sasl.enabled.mechanisms`."
            ),
            "See whether the user is there: `frazil user list`; set the password anew: `frazil user create USER`.",
            "Of a token look at its end, issuer and audience; of HTTP at `--token-file`.",
        ),
    ),
    FaultCode.TLS_FAILED: Fault(
        "TLS does not come about: a certificate is not trusted, is over, or has another name; one side asks for a certificate"
        " that the other does not show; or one side speaks TLS and the other does not.",
        "The connection ends before a request is read, so there is no code of Kafka's. Others go on.",
        (
            "Look at what is shown: `openssl s_client -connect HOST:PORT -servername HOST </dev/null`.",
            (
                "Name whom to trust: `ssl.truststore.location`, for HTTP `--ca-file`; what to show: `ssl.keystore.location`,"
                " `--cert-file`; and TLS at all: `security.protocol=SSL` or `SASL_SSL`."
            ),
            (
                "Of the agent's own certificate: `frazil doctor --config FILE` says until when it holds. A new file in its place"
                " is taken without a restart."
            ),
        ),
    ),
    FaultCode.MEMORY_SHORT: Fault(
        "The process that runs the jobs has not the memory that they need, and gave up before the kernel ended it, or an"
        " agent: the cluster's snapshot is too large for what it may take.",
        "Nothing at first: agents go on. While no agent can run the jobs, nothing is deleted or merged, and the metadata log"
        " grows; beyond `log.bytes.max` writes are refused, retriably.",
        (
            (
                "Read the sentence: it names the snapshot, its size, what the worker may take, and where that comes from. Snapshots"
                " need three to eight times their size."
            ),
            (
                "Raise the memory limit of the agents' pods (`resources.limits.memory` of the chart) or cgroup; or set"
                " `jobs.memory.bytes`, and start the agent again. A limit that is raised while it runs is found within ten minutes."
            ),
            "Or let only agents with enough memory run the jobs: `jobs.enabled=false` on the others.",
            (
                "Have the cluster hold less: fewer partitions, `spill.rows`, `producer.id.expiration.ms`. `frazil job list` says"
                " whether snapshots are made again."
            ),
        ),
    ),
    FaultCode.UNKNOWN_SETTING: Fault(
        "A setting has a name that nobody knows; most often a slip.",
        _COMMAND_ENDS,
        (
            (
                "Take the name that the sentence proposes, or look for it in docs/settings.md"
                " (the exporter's are in docs/export-settings.md)."
            ),
            "In TOML Kafka's settings stand under `[kafka]`. In the environment a name is `FRAZIL_` and capitals, with _ for .",
            "What is one topic's is set on the topic: `frazil topic alter TOPIC --set NAME=VALUE`.",
        ),
    ),
    FaultCode.WRONG_VALUE: Fault(
        "A setting has a value that it cannot have, is missing, or contradicts another one.",
        _COMMAND_ENDS,
        (
            "The sentence names the setting, where its value comes from, and what it may be; all mistakes are told at once.",
            "Later sources win: defaults, the file, the environment (`env | grep FRAZIL_`), `--set`.",
            "Try it without an agent: `frazil doctor --config FILE`.",
        ),
    ),
}
