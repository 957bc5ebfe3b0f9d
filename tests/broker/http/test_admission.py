"""Whose HTTP requests are let in."""

import pytest

from broker.http.admission import HostNames, RequestHead, refusal

NAMES = HostNames(["Frazil.Example.com.", "*.data.example.org"])
JSON = "application/json"


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:9094", "10.1.2.3:9094", "[::1]:9094", "[fe80::1]"),
        *("localhost", "LOCALHOST:8081", "localhost.", "a.localhost", "frazil", "frazil-0:9094"),
        *("frazil.data.svc", "frazil-0.frazil.data.svc.cluster.local:9094"),
        *("frazil.example.com", "FRAZIL.example.com:443", "frazil.example.com.:80"),
        *("a.data.example.org", "a.b.data.example.org"),
    ],
)
def test_a_host_that_only_this_agent_can_be_is_let_in(host: str) -> None:
    assert refusal(RequestHead("GET", host), NAMES) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:9094", "127.0.0.1.evil.example", "localhost.evil.example"),
        *(
            "svc.example",
            "x.svc.example",
            "evil.example#.svc",
            "data.example.org",
            "evildata.example.org",
            "a b",
            "[::1",
        ),
        *("frazil.example.com.evil.example", "1.2.3.4@evil.example", "evil.example/frazil"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_name_that_somebody_else_may_have_is_misdirected(method: str, host: str) -> None:
    refused = refusal(RequestHead(method, host), NAMES)
    assert refused is not None
    assert refused.status == 421
    assert "http.hosts" in refused.reason


def test_any_name_is_let_in_where_the_setting_says_so() -> None:
    assert "evil.example" in HostNames(["*"])
    assert "evil.example" not in HostNames([])


def test_a_client_that_names_no_host_is_no_browser_and_is_let_in() -> None:
    assert refusal(RequestHead("GET", None), NAMES) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    ("origin", "site"),
    [
        ("http://evil.example", None),
        ("null", None),
        ("http://localhost:3000", None),
        ("http://localhost:9094.evil.example", "same-origin"),
        (None, "cross-site"),
        (None, "Cross-Site"),
        (None, "same-site"),
    ],
)
def test_a_page_of_another_site_changes_nothing(
    method: str, origin: str | None, site: str | None
) -> None:
    refused = refusal(RequestHead(method, "localhost:9094", origin, site), NAMES)
    assert refused is not None
    assert refused.status == 403


@pytest.mark.parametrize(
    ("origin", "site"),
    [("http://localhost:9094", "same-origin"), ("https://LOCALHOST:9094", None), (None, "none")],
)
def test_a_page_of_the_agent_itself_may_change_things(origin: str | None, site: str | None) -> None:
    assert refusal(RequestHead("POST", "localhost:9094", origin, site), NAMES) is None


def test_a_page_of_another_site_may_ask_since_it_is_not_shown_the_answer() -> None:
    head = RequestHead("GET", "localhost:9094", "http://evil.example", "cross-site")
    assert refusal(head, NAMES) is None


def body(content_type: str | None, encoding: str | None = None) -> RequestHead:
    return RequestHead(
        "POST",
        "localhost",
        has_body=True,
        content_type=content_type,
        content_encoding=encoding,
    )


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        JSON,
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/octet-stream",
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json; qs=0.9",
    ],
)
def test_a_body_of_a_type_that_confluents_clients_send_is_let_in(content_type: str | None) -> None:
    assert refusal(body(content_type), NAMES) is None


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        *((kind, None) for kind in ("text/plain", "application/x-www-form-urlencoded", "", "é")),
        *((kind, None) for kind in ("multipart/form-data; boundary=x", "text/json", "*/*")),
        *((f"application/json; charset={name}", None) for name in ("utf-16", "zlib", "none")),
        (JSON, "gzip"),
        (None, "deflate"),
    ],
)
def test_a_body_that_a_page_could_send_or_nobody_reads_is_refused(
    content_type: str | None, encoding: str | None
) -> None:
    refused = refusal(body(content_type, encoding), NAMES)
    assert refused is not None
    assert refused.status == 415


def test_a_refusal_fits_into_a_status_line_whatever_was_sent() -> None:
    refused = refusal(RequestHead("GET", "é\x0b" * 5000), NAMES)
    assert refused is not None
    assert refused.reason.isascii()
    assert refused.reason.isprintable()
    assert len(refused.reason) < 1500


@pytest.mark.parametrize(
    ("origin", "site", "takes_forms", "status"),
    [
        ("http://127.0.0.1", None, True, None),
        (None, "same-origin", True, None),
        (None, None, True, 403),
        (None, "none", True, 403),
        ("http://127.0.0.1", "same-origin", False, 415),
        ("http://evil.example", "same-origin", True, 403),
    ],
)
def test_a_form_is_let_in_where_forms_are_taken_from_pages_of_the_agent(
    origin: str | None, site: str | None, takes_forms: bool, status: int | None
) -> None:
    head = RequestHead(
        "POST",
        "127.0.0.1",
        origin,
        site,
        has_body=True,
        content_type="application/x-www-form-urlencoded; charset=utf-8",
        takes_forms=takes_forms,
    )
    refused = refusal(head, NAMES)
    assert (None if refused is None else refused.status) == status
