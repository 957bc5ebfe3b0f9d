"""Commands of `frazil` over SASL_SSL, at an agent and at Apache Kafka: line by line the same answers, and mistakes."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.commands import frazil
from tests.clients.secured_pair import ALICE, GUEST, Secured, Told, secured_pair
from tests.kit.certificates import Authority
from tests.parts.secured import librdkafka

pytestmark = pytest.mark.integration

RECORDS = "one:1\ntwo:2\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_pair(tmp_path_factory.mktemp("secured")) as both:
        yield both


@pytest.fixture(autouse=True)
def no_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Contexts of these tests are theirs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FRAZIL_CONTEXT", raising=False)


@pytest.fixture
def orders(pair: Secured) -> Iterator[Secured]:
    """Where there is a topic, which is deleted when the test ends."""
    pair.done("topic create orders --partitions 2 --config min.insync.replicas=1")
    pair.done("topic describe orders")
    yield pair
    assert pair.admin("topic delete orders --yes --if-exists").code == 0


def test_topics_are_made_listed_altered_and_deleted(orders: Secured) -> None:
    assert orders.done("topic list") == ["NAME PARTITIONS REPLICAS", "orders 2 1"]
    orders.done("topic create orders other --if-not-exists --json")
    orders.done("topic alter orders --set retention.ms=-1")
    assert "retention.ms -1 DYNAMIC_TOPIC_CONFIG" in orders.done("topic describe orders")
    orders.done("topic add-partitions orders --to 3")
    assert "orders 3 1" in orders.done("topic list")
    orders.done("topic trim orders --all --yes")
    orders.done("topic delete orders other --yes")
    assert orders.done("topic list") == ["there are no topics"]


def test_records_are_sent_and_read_also_as_a_group(orders: Secured) -> None:
    orders.done("produce orders -K : -p 0", RECORDS)
    orders.done(
        "produce orders --json --keep-partitions", '{"key": "k", "value": null, "partition": 0}\n'
    )
    form = r"-f '%o %k=%s\n' --null -"
    assert orders.done(f"consume orders -e {form}") == ["0 one=1", "1 two=2", "2 k=-"]
    told = orders.done("consume orders -p 0 -e --json")
    assert [json.loads(line.replace("TIME", "1"))["key"] for line in told] == ["one", "two", "k"]
    group = "consume orders -g readers"
    assert len(orders.done(f"{group} -n 2")) == 2
    assert len(orders.done(f"{group} -e")) == 1
    assert orders.done(f"{group} -e") == []
    assert any("readers" in line for line in orders.done("group list"))
    orders.done("group describe readers")
    orders.done("group reset readers --topic orders --to-earliest --execute")
    assert len(orders.done(f"{group} -e")) == 3
    orders.done("group delete readers")
    assert orders.done("group list") == ["there are no groups"]


def test_configs_and_quotas_are_altered_and_described(orders: Secured) -> None:
    orders.done("config alter --topic orders --set retention.ms=5000")
    assert any("retention.ms" in line for line in orders.done("config describe --topic orders"))
    orders.done("config alter --group g --set consumer.session.timeout.ms=50000")
    orders.done("config describe --group g")
    orders.done("config alter --group g --unset consumer.session.timeout.ms")
    orders.done("quota alter --user alice --set producer_byte_rate=1048576")
    assert any("1048576" in line for line in orders.done("quota describe --user alice"))
    orders.done("quota alter --user alice --unset producer_byte_rate")
    assert orders.done("quota describe") == ["there are no quotas"]


def test_users_and_rights_are_given_and_taken_away(orders: Secured) -> None:
    listed = orders.done("user list")
    orders.done("user create bob", "bob's word")
    assert orders.done("user list") == sorted([*listed, "bob: SCRAM-SHA-512 (4096)"])
    orders.done("acl add --topic orders --allow-principal User:bob --operation Read")
    assert any("User:bob" in line for line in orders.done("acl list --topic orders"))
    orders.done("acl list --json")
    orders.done("acl remove --topic orders --allow-principal User:bob --operation Read")
    assert orders.done("acl list") == ["there are no ACLs"]
    orders.done("user delete bob")
    assert orders.done("user list") == listed


def test_the_cluster_and_its_transactions_are_told_of(orders: Secured) -> None:
    for side in orders:
        producer = Producer(
            {"bootstrap.servers": side.bootstrap, "transactional.id": "pay", **librdkafka(side.who)}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"paid")
        producer.commit_transaction(60)
    assert orders.done("cluster describe")[-1] == "1 HOST:PORT - controller"
    assert orders.done("txn list")[-1] == "pay CompleteCommit N N"
    assert orders.done("txn describe pay")[0].startswith("pay: CompleteCommit, producer N")
    orders.done("txn find-hanging")


def test_a_context_has_what_commands_need_and_they_need_no_flag(orders: Secured) -> None:
    for side in orders:
        made = side.told("context create here --command-config {admin} --use")
        assert (made.code, made.complaints) == (0, [])
        for words, given in (
            ("context list", ""),
            ("topic list", ""),
            ("produce orders", "by a context\n"),
            ("consume orders -e", ""),
            ("consume orders -g readers -e", ""),
            ("group describe readers", ""),
            ("group delete readers", ""),
            ("config describe --topic orders", ""),
            ("quota describe", ""),
            ("user list", ""),
            ("acl list", ""),
            ("token list", ""),
            ("cluster describe", ""),
            ("txn list", ""),
        ):
            told = side.told(words, given)
            assert (told.code, told.complaints) == (0, []), (words, told)
        deleted = side.told("context delete here --yes")
        assert deleted.lines == ['context "here" is deleted']


# Delegation tokens.


def token(pair: Secured, words: str, *, of: str = ALICE) -> Told:
    return pair.both(f"token {words} --command-config {{{of}}}")


def test_a_token_is_made_listed_renewed_and_ended(pair: Secured) -> None:
    made = token(pair, f"create --renewer-principal User:{GUEST} --json")
    (told,) = [json.loads(line.replace(": TIME", ": 1")) for line in made.lines]
    assert told == {
        "token_id": "ID",
        "owner": "User:alice",
        "requester": "User:alice",
        "renewers": ["User:guest"],
        "issued_ms": 1,
        "expires_ms": 1,
        "max_ms": 1,
        "hmac": "HMAC",
    }
    printed = token(pair, "create --max-life-time-period 3600000")
    assert [line.split()[-1] for line in printed.lines] == ["HMAC", "HMAC"]
    head, *rows = token(pair, "list").lines
    assert head == "TOKEN-ID OWNER REQUESTER RENEWERS ISSUED EXPIRES MAX"
    assert rows == [
        "ID User:alice User:alice User:guest TIME TIME TIME",
        "ID User:alice User:alice - TIME TIME TIME",
    ]
    assert len(token(pair, "list", of=GUEST).lines) == 2
    for side in pair:
        listed = frazil(
            *("token", "list", "--with-hmac", "--json", "--command-config", str(side.file(ALICE)))
        )
        for number, one in enumerate(json.loads(listed.out)):
            (side.folder / f"hmac{number}").write_text(one["hmac"])
    renewed = token(pair, "renew --hmac-file {hmac0} --renew-time-period 60000", of=GUEST)
    assert renewed.lines == ["the token ends at TIME"]
    assert token(pair, "renew --hmac-file {hmac1} --json").lines == ['{"expires_ms": TIME}']
    later = token(pair, "expire --hmac-file {hmac0} --expiry-time-period 60000")
    assert later.lines == ["the token ends at TIME"]
    for number in range(2):
        ended = token(pair, f"expire --hmac-file {{hmac{number}}}")
        assert ended.lines == ["the token is ended: nobody logs in by it any more"]
    assert token(pair, "list").lines == ["there are no tokens that you may see"]
    for side in pair:
        for number in range(2):
            (side.folder / f"hmac{number}").unlink()


def test_who_has_a_tokens_file_is_its_owner_until_it_ends(orders: Secured) -> None:
    kept = orders.done("token create --out {folder}/job.properties")
    assert kept[0].startswith("token ID of User:admin is in FOLDER/job.properties: it ends at TIME")
    by_token = "--command-config {job}"
    assert orders.both(f"topic list {by_token}").lines[-1] == "orders 2 1"
    assert "guest: SCRAM-SHA-512 (4096)" in orders.both(f"user list {by_token}").lines
    assert refused(orders, f"token list {by_token}").endswith(
        "tokens are not listed: who asks for tokens has to log in, and not by a token (--command-config)"
    )
    for words in ("produce orders", "consume orders -e", "bench"):
        assert "delegation tokens" in refused(orders, f"{words} {by_token}")
    orders.done("token renew --hmac-file {job}")
    orders.done("token expire --hmac-file {job}")
    # Kafka's broker takes it for a moment longer than its controller.
    assert orders.both(f"topic list {by_token}").code == 1
    assert "Authentication failed" in refused(orders, f"topic list {by_token}")
    for side in orders:
        side.file("job").unlink()


def test_mistakes_about_tokens_are_told_the_same(pair: Secured) -> None:
    for side in pair:
        (side.folder / "nobodys").write_text("AAAA")
    every = "--command-config {guest}"
    for words, sentence in (
        ("token list --bootstrap {plain}", "who asks for tokens has to log in"),
        ("token create --bootstrap {plain}", "who asks for tokens has to log in"),
        (f"token renew --hmac-file {{nobodys}} {every}", "no token has this HMAC"),
        (f"token expire --hmac-file {{nobodys}} {every}", "no token has this HMAC"),
        (f"token create --owner-principal User:alice {every}", "the right CREATE_TOKENS"),
        (f"token create --renewer-principal Group:staff {every}", "owners and renewers are users"),
        (f"token renew --hmac-file {{alice}} {every}", "the file of a user"),
        (f"token create --out {{alice}} {every}", "is there already"),
    ):
        assert sentence in refused(pair, words)
    for side in pair:
        made = frazil("token", "create", "--json", "--command-config", str(side.file(ALICE)))
        (side.folder / "nobodys").write_text(json.loads(made.out)["hmac"])
    for words in ("renew", "expire"):
        told = refused(pair, f"token {words} --hmac-file {{nobodys}} {every}")
        assert "you are neither its owner nor a renewer" in told
    token(pair, "expire --hmac-file {nobodys}")
    for side in pair:
        (side.folder / "nobodys").unlink()


# Mistakes.


def refused(pair: Secured, words: str, given: str = "") -> str:
    """The one sentence that both say why it is not done."""
    told = pair.both(words, given, changes_nothing=True)
    assert told.code == 1, told
    (sentence,) = told.complaints
    return sentence


COMMANDS = (
    "topic list",
    "topic create new",
    "group list",
    "config describe --all-brokers",
    "quota describe",
    "user list",
    "acl list",
    "token list",
    "txn list",
    "cluster describe",
    "produce orders",
    "consume orders -e",
    "consume orders -g readers -e",
)
FEW = ("topic list", "token list", "produce orders", "consume orders -e")
"""One of each way to ask: the tools' client, and librdkafka as a producer and as a consumer."""


def test_who_has_another_password_is_told_so(orders: Secured) -> None:
    for side in orders:
        text = side.file("admin").read_text().replace("admin secret", "another secret")
        side.file("stranger").write_text(text)
    for words in COMMANDS:
        told = refused(orders, f"{words} --command-config {{stranger}}", "1\n")
        assert told.endswith(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            " SCRAM-SHA-512 (sasl.jaas.config has user and password) [login-failed]"
        )


def test_a_certificate_of_another_authority_is_not_taken(orders: Secured) -> None:
    for side in orders:
        other = side.folder / "other.pem"
        other.write_text(Authority().pem)
        side.write("misled", ssl_truststore_location=str(other))
    for words in FEW:
        told = refused(orders, f"{words} --command-config {{misled}}", "1\n")
        assert ": HOST:PORT: its certificate is not taken" in told
        assert told.endswith("(ssl.truststore.location says whom to trust) [tls-failed]")


def test_a_mechanism_that_is_not_offered_is_told_of(orders: Secured) -> None:
    for side in orders:
        side.write("older", sasl_mechanism="SCRAM-SHA-256")
    for words in FEW:
        told = refused(orders, f"{words} --command-config {{older}}", "1\n")
        assert "SCRAM-SHA-512" in told
        assert told.endswith("(sasl.mechanism) [login-failed]")


@pytest.mark.parametrize("words", FEW)
def test_who_speaks_no_tls_where_it_is_spoken_is_told_what_to_do(
    orders: Secured, words: str
) -> None:
    """Kafka's listener says that it wants TLS, an agent's hangs up."""
    for side in orders:
        told = side.told(f"{words} --bootstrap {{bootstrap}} --timeout-ms 2000", "1\n")
        assert told.code == 1
        (sentence,) = told.complaints
        assert "TLS" in sentence
        assert "--command-config" in sentence


@pytest.mark.parametrize("words", FEW)
def test_who_speaks_tls_where_it_is_not_spoken_is_told_what_to_do(
    orders: Secured, words: str
) -> None:
    config = "--command-config {admin} --bootstrap {plain} --timeout-ms 2000"
    told = refused(orders, f"{words} {config}", "1\n")
    assert "HOST:PORT ended TLS; does it speak it? (security.protocol)" in told


TOPIC, GROUP, CLUSTER = (
    f"you may not do that {where}"
    for where in ("with this topic", "with this group", "in this cluster")
)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("topic create new", f'topic "new" is not created: {TOPIC}'),
        ("topic describe orders", f'topic "orders" is not described: {TOPIC}'),
        ("topic alter orders --set retention.ms=1", f'topic "orders" is not altered: {TOPIC}'),
        ("topic add-partitions orders --to 5", f'topic "orders" is not widened: {TOPIC}'),
        ("topic trim orders --all --yes", f'topic "orders": {TOPIC}'),
        ("topic delete orders --yes", f'topic "orders" is not deleted: {TOPIC}'),
        ("group describe readers", f'group "readers": {GROUP}'),
        ("group reset readers --topic orders --to-latest --execute", f'group "readers": {GROUP}'),
        ("group delete readers", f'group "readers" is not deleted: {GROUP}'),
        ("config describe --topic orders", f"configs of topic orders: {TOPIC}"),
        ("config describe --all-brokers", f"configs of all brokers: {CLUSTER}"),
        ("config alter --topic orders --set retention.ms=1", f"configs of topic orders: {TOPIC}"),
        ("quota describe", f"quotas are not told: {CLUSTER}"),
        ("quota alter --user bob --set producer_byte_rate=1", f"quotas of user bob: {CLUSTER}"),
        ("user list", f"users are not told: {CLUSTER}"),
        ("user create bob", f"user bob is not made: {CLUSTER}"),
        ("user delete admin", f"user admin is not deleted: {CLUSTER}"),
        ("acl list", f"ACLs are not told: {CLUSTER}"),
        ("acl add --topic t --allow-principal User:bob", f"nothing is sure to be added: {CLUSTER}"),
        ("txn describe pay", 'transactional id "pay": you may not see that transactional id'),
        ("produce orders", "TOPIC_AUTHORIZATION_FAILED"),
        ("consume orders -e", "TOPIC_AUTHORIZATION_FAILED"),
        ("consume orders -g readers -e", "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_who_has_no_right_is_told_to_what(orders: Secured, words: str, sentence: str) -> None:
    assert sentence in refused(orders, f"{words} --command-config {{guest}}", "1\n")


def test_lists_have_nothing_for_who_has_no_right(orders: Secured) -> None:
    for words in ("topic list", "group list", "txn list", "token list"):
        told = orders.both(f"{words} --command-config {{guest}}")
        assert (told.code, told.complaints) == (0, [])
        assert "orders" not in "".join(told.lines)


@contextlib.contextmanager
def allowed(pair: Secured, words: str) -> Iterator[None]:
    """The guest may do this, for a while."""
    about = f"{words} --allow-principal User:{GUEST}"
    pair.done(f"acl add {about}")
    try:
        yield
    finally:
        pair.done(f"acl remove {about}")


def test_who_may_see_a_topic_and_not_write_to_it_is_told_so_and_nothing_is_in_it(
    orders: Secured,
) -> None:
    guest = "--command-config {guest}"
    with allowed(orders, "--topic orders --operation Describe"):
        # Kafka's broker hears of it a moment later.
        assert orders.both(f"topic list {guest}").lines[-1] == "orders 2 1"
        told = refused(orders, f"produce orders {guest}", RECORDS)
        assert "you may write to no topic (that is the right WRITE); 0 records" in told
        told = refused(orders, f"produce orders --acks 1 {guest}", RECORDS)
        assert "2 of 2 records are not in topic orders" in told
        assert "TOPIC_AUTHORIZATION_FAILED" in told
    assert orders.done("consume orders -e") == []


def test_who_may_read_a_topic_reads_it_without_any_right_on_groups(orders: Secured) -> None:
    orders.done("produce orders -p 0", RECORDS)
    guest = "--command-config {guest}"
    with allowed(orders, "--topic orders --operation Read"):
        assert orders.both(f"topic list {guest}").lines[-1] == "orders 2 1"
        told = orders.both(f"consume orders -e {guest}")
        assert told == (RECORDS.split(), [], 0)
        assert "GROUP_AUTHORIZATION_FAILED" in refused(orders, f"consume orders -g g -e {guest}")
