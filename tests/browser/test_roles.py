"""Over TLS and with rights on: what viewers, readers and operators see and may do, each logged in with a token."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import looking
from tests.kit.certificates import Authority
from tests.parts.secured import SecuredDev, give
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ROLES = ("viewer", "reader", "operator")
RIGHTS = (
    ("reader", "orders", AclOperation.READ),
    ("operator", "returns", AclOperation.READ),
    ("operator", "returns", AclOperation.WRITE),
)
"""To topics. No role gives them."""
REFUSED = "status of 40"
"""As a browser tells of a page that somebody may not see, or of a form that comes back."""


class Secured(NamedTuple):
    chromium: Browser
    agent: SecuredDev

    def url(self, path: str) -> str:
        return f"https://localhost:{self.agent.http_port}{path}"

    def of(self, role: str):
        """A page of somebody who has this role."""
        login = {"username": "token", "password": token_of(role)}
        return looking(
            self.chromium, expected=REFUSED, http_credentials=login, ignore_https_errors=True
        )

    def status(self, page: Page, path: str) -> int:
        answer = page.goto(self.url(path))
        assert answer is not None
        return answer.status


def token_of(role: str) -> str:
    return f"the-token-of-a-{role}"


@pytest.fixture(scope="module")
def secured(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("roles")
    (folder / "agent.pem").write_text(Authority().sign("agent").pem)
    for role in ROLES:
        (folder / role).write_text(token_of(role))
    agent = SecuredDev(folder / "dev")
    settings = [
        f"http=https://127.0.0.1:{agent.http_port}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'agent.pem'}",
        f"http.tokens={','.join(f'{role}:{folder / role}' for role in ROLES)}",
        *[f"http.roles.{role}=User:{role}" for role in ROLES],
        f"authorizer.class.name={STANDARD}",
        # Kafka's listener is the test's own.
        "super.users=User:ANONYMOUS",
    ]
    agent.child.argv += [word for setting in settings for word in ("--set", setting)]
    with agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        for topic in ("orders", "payments"):
            create_topic(admin, topic, 1)
        give(admin, [right(*each) for each in RIGHTS])
        producer = Producer({"bootstrap.servers": agent.bootstrap})
        producer.produce("orders", '{"item": "ice"}', key="ann")
        producer.produce("payments", '{"cents": 700}', key="ann")
        assert producer.flush(60) == 0
        yield Secured(chromium, agent)
        assert agent.stop() == 0


def right(user: str, topic: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def test_a_viewer_sees_topics_and_neither_their_records_nor_rights_nor_a_button(
    secured: Secured,
) -> None:
    with secured.of("viewer") as page:
        assert secured.status(page, "/console/topic?name=orders") == 200
        expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
        for name in ("Delete", "Add partitions", "Change a config"):
            expect(page.get_by_role("link", name=name)).to_have_count(0)
        for path in (
            "/console/records?topic=orders",
            "/console/access",
            "/console/topic/delete?name=orders",
            "/console/topic/create",
            "/console/records/produce?topic=orders",
        ):
            assert secured.status(page, path) == 403, path


def test_a_reader_sees_records_of_topics_that_they_have_the_right_to_read(
    secured: Secured,
) -> None:
    with secured.of("reader") as page:
        assert secured.status(page, "/console/records?topic=orders") == 200
        expect(page.get_by_role("main")).to_contain_text('{"item": "ice"}')
        expect(page.get_by_role("link", name="Produce a record")).to_have_count(0)
        assert secured.status(page, "/console/records?topic=payments") == 403
        expect(page.get_by_role("main")).to_contain_text("denied operation READ")
        assert "700" not in page.content()
        assert secured.status(page, "/console/records/produce?topic=orders") == 403


def test_an_operator_makes_a_topic_writes_to_it_and_deletes_it_each_after_a_page_that_says_so(
    secured: Secured,
) -> None:
    with secured.of("operator") as page:
        assert secured.status(page, "/console/topics") == 200
        page.get_by_role("link", name="Create a topic").click()
        page.get_by_label("Name").fill("returns")
        page.get_by_role("button", name="Create it").click()
        expect(page.get_by_role("main")).to_contain_text("Topic “returns” was created.")

        page.get_by_role("link", name="Records", exact=True).click()
        page.get_by_role("link", name="Produce a record").click()
        page.get_by_label("Value", exact=True).fill("broken on arrival")
        page.get_by_role("button", name="Show what will be written").click()
        expect(page.get_by_role("main")).to_contain_text("partition 0 of returns")
        page.get_by_role("button", name="Write it").click()
        expect(page.get_by_role("main")).to_contain_text("It is at offset 0 of partition 0")
        page.reload()
        page.get_by_role("link", name="Records", exact=True).click()
        expect(page.get_by_role("rowheader")).to_have_text(["0"])
        expect(page.get_by_role("main")).to_contain_text("broken on arrival")

        secured.status(page, "/console/topic?name=returns")
        page.get_by_role("link", name="Delete").click()
        expect(page.get_by_role("main")).to_contain_text("the 1 offset in them")
        page.get_by_label("Type returns to confirm").fill("retorns")
        page.get_by_role("button", name="Delete it").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Type returns to confirm").fill("returns")
        page.get_by_role("button", name="Delete it").click()
        expect(page.get_by_role("main")).to_contain_text("Topic “returns” was deleted.")
        assert secured.status(page, "/console/topic?name=returns") == 404
        assert secured.status(page, "/console/access") == 200


def test_an_operator_writes_no_record_where_no_right_was_given(secured: Secured) -> None:
    with secured.of("operator") as page:
        assert secured.status(page, "/console/records/produce?topic=orders") == 403
        expect(page.get_by_role("main")).to_contain_text("denied operation WRITE")
