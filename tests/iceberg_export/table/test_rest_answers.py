"""A REST catalog whose answers are lost, or are errors: every commit lands once all the same.

Between the exporter and Iceberg's own REST server stands a proxy that carries requests out and loses
the answer, or answers for the server. The fates of a commit are told of each kind that there is.
"""

import itertools
import json
import pickle

import pytest

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.errors import CatalogError, ExportError, SettingsError
from iceberg_export.steps import Step
from iceberg_export.table.catalog import find_table, io_properties, open_catalog
from iceberg_export.table.rest_catalog import nested, with_last_column_ids
from iceberg_export.upkeep import maintain
from iceberg_export.upkeep.compact import compact
from iceberg_export.upkeep.maintain import delete_orphans, expire
from tests.iceberg_export.kit.hooks import Once
from tests.iceberg_export.kit.place import FAR, Place
from tests.iceberg_export.kit.registry import ORDER_1, ORDER_2, avro
from tests.iceberg_export.table import catalogs
from tests.iceberg_export.table.catalogs import connections
from tests.parts.http_proxy import SILENCE, Fate, FatefulProxy

pytestmark = pytest.mark.integration

NUMBERS = itertools.count()


def refused(status: int) -> bytes:
    """An error as REST catalogs tell it."""
    error = {"message": "not today\nor ever", "type": "RefusedException", "code": status}
    return json.dumps({"error": error}).encode()


FATES = (
    Fate(lands=True, status=None),
    Fate(lands=True, status=500, body=refused(500)),
    Fate(lands=True, status=503),
    Fate(lands=True, status=401, body=refused(401)),
    Fate(lands=True, status=200, body=b"<html>a gateway's page</html>"),
    Fate(lands=False, status=None),
    Fate(lands=False, status=403, body=refused(403)),
    Fate(lands=False, status=504, body=b"<html>\nupstream\n</html>"),
    Fate(lands=False, status=501, body=refused(501)),
)


@pytest.fixture
def proxy(rest):
    with FatefulProxy(rest.port) as found:
        yield found


@pytest.fixture
def connect(proxy, tmp_path):
    with connections(catalogs.rest(proxy.url), tmp_path) as open_one:
        yield open_one


@pytest.fixture
def here(connect, tmp_path):
    return Place(tmp_path, 2, connect(), ("frazil", f"t{next(NUMBERS)}"))


@pytest.fixture(params=FATES, ids=str)
def fate(request):
    return request.param


def once_or_twice(do):
    """Again, when the first time ends with one sentence."""
    said = ""
    try:
        do()
    except ExportError as error:
        said = str(error)
    assert "\n" not in said
    if said:
        do()


def commits_of(table, action="add-snapshot"):
    """Is this request a commit to that table, and does it say so?"""
    said = f'"action":"{action}"'.encode()
    return lambda one: (
        one.method == "POST" and one.path.endswith(f"/tables/{table}") and said in one.body
    )


def told(here):
    """The numbers of all commits of the export's state, in order."""
    snapshots = here.table().metadata.snapshots
    return [int(one.summary.additional_properties["frazil.seq"]) for one in snapshots]


def test_the_table_with_its_first_snapshot(here, proxy, fate):
    here.fill()
    proxy.befall(commits_of(here.name[1]), fate)
    here.export()
    assert proxy.befell
    assert here.rows() == here.wanted()
    assert told(here) == [0, 1]


def test_the_beginning_of_a_table(here, proxy, fate):
    """This request only asks how the table would be; the commit of its first snapshot creates it."""
    here.fill()
    proxy.befall(
        lambda one: one.path.endswith("/tables") and here.name[1].encode() in one.body, fate
    )
    once_or_twice(here.export)
    assert proxy.befell
    assert here.rows() == here.wanted()
    assert told(here) == [0, 1]


def test_a_commit_of_data(here, proxy, fate):
    here.exported()
    here.fill()
    proxy.befall(commits_of(here.name[1]), fate)
    here.export()
    assert proxy.befell
    assert here.rows() == here.wanted()
    assert told(here) == [0, 1, 2]


def test_a_commit_of_data_whose_repetitions_lose_their_answers_too(here, proxy):
    here.exported()
    here.fill()
    proxy.befall(commits_of(here.name[1]), *(FATES[5:] * 2), FATES[0])
    here.export()
    assert proxy.befell
    assert here.rows() == here.wanted()
    assert told(here) == [0, 1, 2]


def test_a_commit_of_an_upsert(here, proxy, fate):
    here.world.configs["orders"] = {"mode": "upsert", "partition.by": "bucket(2, kafka_key)"}
    for number in range(2):
        here.send(*[b"%d" % number] * 2, keys=[b"k0", b"k1"])
        if number == 1:
            proxy.befall(commits_of(here.name[1]), fate)
        here.export()
    assert proxy.befell
    assert here.rows() == [(0, 2, b"1"), (0, 3, b"1")]
    assert told(here) == [0, 1, 2]


def test_a_commit_of_dead_letters(here, proxy, fate):
    here.configure(value_mode="string")
    for number in range(2):
        here.send(b"a", b"\xff")
        if number == 1:
            proxy.befall(commits_of(dead_letter_identifier(here.name)[1]), fate)
        here.export()
    assert proxy.befell
    assert [row[1] for row in here.rows()] == [0, 2]
    assert here.dead_offsets() == [1, 3]


def test_a_change_of_the_columns(here, registry, proxy, fate):
    here.configure(value_mode="avro")
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 7, "city": "Ulm"}))
    here.export()
    two = registry.register("orders-value", ORDER_2)
    here.send(avro(two, ORDER_2, {"id": 1 << 40, "city": "Ulm", "price": 2.5}))
    proxy.befall(commits_of(here.name[1], "add-schema"), fate)
    here.export()
    assert proxy.befell
    assert here.columns("id", "price") == [(7, None), (1 << 40, 2.5)]
    assert told(here) == [0, 1, 2]


def test_a_reset(here, proxy, fate):
    here.fill()
    here.export()
    proxy.befall(commits_of(here.name[1]), fate)
    assert here.reset({0: 3}).rows_removed == 2
    assert proxy.befell
    assert here.rows() == [row for row in here.wanted() if row[0] == 1 or row[1] < 3]
    here.export()
    assert here.rows() == here.wanted()
    assert told(here) == [0, 1, 2, 3]


def test_a_replacement_of_small_files(here, proxy, fate):
    here.exported(2)
    proxy.befall(commits_of(here.name[1]), fate)
    assert compact(here.job(), here.name, FAR).files_before >= 2
    assert proxy.befell
    assert here.rows() == here.wanted()
    here.fill()
    here.export()
    assert here.rows() == here.wanted()


def test_the_fence_before_orphans_go(here, proxy, fate):
    here.fill()
    here.export()
    here.reset(None)
    path = f"{here.table().location()}/data/r99-left.parquet"
    with here.table().io.new_output(path).create() as stream:
        stream.write(b"of a run that died")
    proxy.befall(commits_of(here.name[1]), fate)
    assert delete_orphans(here.job(), here.name, -1).files_deleted == 1
    assert proxy.befell
    here.export()
    assert here.rows() == here.wanted()


def test_an_expiry(here, proxy, fate, monkeypatch):
    """What cannot be known is told, and done again."""
    monkeypatch.setattr(maintain, "SNAPSHOTS_KEPT_MIN", 1)
    here.exported(3)
    proxy.befall(commits_of(here.name[1], "remove-snapshots"), fate)
    once_or_twice(lambda: expire(here.job(), here.name, FAR))
    assert proxy.befell
    assert len(here.table().metadata.snapshots) == 1
    here.fill()
    here.export()
    assert here.rows() == here.wanted()


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (401, refused(401), "RefusedException: not today"),
        (403, refused(403), "RefusedException: not today"),
        (503, b"", "Service Unavailable"),
        (200, b"<html>a gateway's page</html>", "frazil.t"),
    ],
)
@pytest.mark.parametrize("step", [Step.INITIALISED, Step.TASKS_DONE, Step.COMMIT_WRITTEN])
def test_a_catalog_that_refuses_from_a_step_on_is_one_sentence(
    here, proxy, step, status, body, sentence
):
    """And when it does not any more, the next run brings what is missing."""
    here.exported()
    here.fill()

    def refuse():
        proxy.befall(lambda _one: True, *[Fate(lands=False, status=status, body=body)] * 999)

    with pytest.raises(ExportError, match=sentence) as caught:
        here.export(hook=Once(step, refuse))
    assert "\n" not in str(caught.value)
    proxy.befall(lambda _one: False)
    here.export()
    assert here.rows() == here.wanted()
    assert told(here) == [0, 1, 2]


def test_a_server_that_does_not_answer_is_given_up(proxy, tmp_path):
    settings = {"type": "rest", "uri": proxy.url, "rest.client.socket-timeout-ms": "500"}
    catalog = open_catalog(settings, tmp_path)
    proxy.befall(lambda _one: True, Fate(lands=False, status=SILENCE))
    with pytest.raises(CatalogError, match="timed out"):
        find_table(catalog, ("frazil", "orders"))
    catalog.close()


def authorizations(proxy):
    return {one.headers.get("authorization") for one in proxy.requests}


def test_a_token_and_headers_reach_the_server_with_every_request(proxy, tmp_path):
    told = {"token": "s3cret", "header.X-Tenant": "ice"}
    catalog = open_catalog({"type": "rest", "uri": proxy.url, **told}, tmp_path)
    Place(tmp_path, 1, catalog, ("auth", "by_token")).export()
    assert authorizations(proxy) == {"Bearer s3cret"}
    assert {one.headers.get("x-tenant") for one in proxy.requests} == {"ice"}
    catalog.close()


def test_a_name_and_password_reach_the_server(proxy, tmp_path):
    told = {"auth.type": "basic", "auth.basic.username": "u", "auth.basic.password": "p"}
    catalog = open_catalog({"type": "rest", "uri": proxy.url, **told}, tmp_path)
    Place(tmp_path, 1, catalog, ("auth", "by_password")).export()
    assert authorizations(proxy) == {"Basic dTpw"}
    catalog.close()


def test_a_credential_becomes_a_token_and_what_tasks_get_of_it_travels(proxy, tmp_path):
    """PyIceberg leaves its means to sign in, with a lock in it, among the table's own."""
    told = {
        "auth.type": "oauth2",
        "auth.oauth2.client_id": "exporter",
        "auth.oauth2.client_secret": "007",
        "auth.oauth2.token_url": f"{proxy.url}/issue",
        "auth.oauth2.refresh_margin": "60",
    }
    granted = json.dumps({"access_token": "granted", "expires_in": 3600}).encode()
    proxy.befall(
        lambda one: one.path == "/issue", *[Fate(lands=False, status=200, body=granted)] * 9
    )
    catalog = open_catalog({"type": "rest", "uri": proxy.url, **told}, tmp_path)
    place = Place(tmp_path, 1, catalog, ("auth", "by_credential"))
    place.export()
    issued = [one for one in proxy.requests if one.path == "/issue"]
    others = [one for one in proxy.requests if one.path != "/issue"]
    assert {one.headers["authorization"] for one in others} == {"Bearer granted"}
    assert issued
    found = io_properties(place.table())
    assert pickle.loads(pickle.dumps(found)) == found
    catalog.close()


def test_settings_of_trees_are_made_trees():
    told = {"auth.type": "basic", "auth.basic.username": "7", "uri": "x", "ssl.cabundle": "ca.pem"}
    assert nested(told) == {
        "auth": {"type": "basic", "basic": {"username": "7"}},
        "uri": "x",
        "ssl": {"cabundle": "ca.pem"},
    }
    with pytest.raises(SettingsError, match=r"catalog\.auth\.basic\.username"):
        nested({"auth.basic": "x", "auth.basic.username": "y"})


def test_a_package_that_a_setting_needs_is_named(proxy, tmp_path):
    told = {"auth.type": "google"}
    with pytest.raises(CatalogError, match="cannot open the Iceberg catalog frazil: "):
        open_catalog({"type": "rest", "uri": proxy.url, **told}, tmp_path)


def test_a_new_schema_is_sent_with_its_highest_id_which_nessie_demands():
    inner = {"id": 9, "name": "city", "type": "string", "required": False}
    place = {"type": "struct", "fields": [inner]}
    outer = {"id": 4, "name": "place", "type": place, "required": False}
    added = {
        "action": "add-schema",
        "schema": {"type": "struct", "schema-id": 1, "fields": [outer]},
    }
    other = {"action": "set-current-schema", "schema-id": -1}
    told = {"requirements": [], "updates": [added, other]}
    found = json.loads(with_last_column_ids(json.dumps(told).encode()))
    assert found == {"requirements": [], "updates": [{**added, "last-column-id": 9}, other]}
    assert with_last_column_ids(b"no commit") == b"no commit"


def test_a_table_with_a_column_of_that_name_is_sent_as_it_is():
    created = {"name": "orders", "schema": {"fields": [{"name": "add-schema"}]}}
    body = json.dumps(created, separators=(",", ":")).encode()
    assert with_last_column_ids(body) == body
