"""The table of schemas: what a subject has, who shares an id, what may go, and when to look again."""

from hashlib import sha256

import pytest

from coordinator.commands.entries import DONE, Rejected
from coordinator.commands.table_commands import (
    SCHEMA_ID_MAX,
    DeleteSubject,
    Reference,
    RegisterSchema,
    SchemaKind,
    SchemaRegistered,
    SetSubjectRules,
    SubjectDeleted,
)
from coordinator.tables import schemas
from coordinator.tables.schemas import ALL, LATEST, Schemas
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position
from tests.coordinator.machine.story import Story

LOOK_AGAIN = ErrorCode.INVALID_UPDATE_VERSION
TAKEN = ErrorCode.DUPLICATE_RESOURCE
NO_ROOM = ErrorCode.POLICY_VIOLATION
NOT_THERE = ErrorCode.RESOURCE_NOT_FOUND
REFERRED_TO = ErrorCode.OPERATION_NOT_ATTEMPTED
NOT_HIDDEN = ErrorCode.INVALID_RECORD_STATE
NO_SENSE = ErrorCode.INVALID_REQUEST


class SchemaStory(Story):
    def __init__(self) -> None:
        super().__init__()
        self.agent = self.open()

    @property
    def schemas(self) -> Schemas:
        return self.machine.schemas

    def register(
        self,
        subject: str,
        text: str,
        *references: Reference,
        seen: int = POSITION_ZERO,
        **given: int,
    ) -> tuple[int, int] | ErrorCode:
        """Id and version."""
        fingerprint = sha256(repr((text, references)).encode()).digest()
        command = RegisterSchema(
            subject,
            SchemaKind.AVRO,
            text.encode(),
            fingerprint,
            references,
            Position(seen),
            **given,
        )
        outcome = self.do(self.agent, command)
        if isinstance(outcome, Rejected):
            return outcome.error
        assert isinstance(outcome, SchemaRegistered)
        return outcome.schema_id, outcome.version

    def delete(
        self, subject: str, version: int = ALL, *, permanent: bool = False
    ) -> tuple[int, ...] | ErrorCode:
        outcome = self.do(self.agent, DeleteSubject(subject, version, permanent))
        if isinstance(outcome, Rejected):
            return outcome.error
        assert isinstance(outcome, SubjectDeleted)
        return outcome.versions

    def rule(self, subject: str, compatibility: str | None = None, mode: str | None = None):
        return self.do(self.agent, SetSubjectRules(subject, compatibility, mode))


def test_versions_of_a_subject_count_upwards_and_so_do_ids():
    story = SchemaStory()
    assert story.register("a", "one") == (1, 1)
    assert story.register("a", "two") == (2, 2)
    assert story.register("b", "three") == (3, 1)
    assert story.schemas.subjects() == ["a", "b"]
    assert story.schemas.versions("a") == [1, 2]
    assert story.schemas.versions("none") == []
    newest = story.schemas.version("a", LATEST)
    assert newest == story.schemas.version("a", 2)
    assert newest is not None
    assert (newest.version, newest.schema_id, newest.body, newest.deleted) == (2, 2, b"two", False)
    assert story.schemas.version("a", 3) is None
    assert story.schemas.version("none", LATEST) is None
    assert story.schemas.max_id() == 3


def test_a_schema_that_is_the_same_has_one_id_in_all_subjects_and_one_version_in_each():
    story = SchemaStory()
    assert story.register("a", "one") == (1, 1)
    assert story.register("b", "one") == (1, 1)
    assert story.register("a", "two") == (2, 2)
    assert story.register("a", "one") == (1, 1)
    assert story.schemas.uses(1) == [("a", 1), ("b", 1)]
    assert len(story.schemas) == 2
    assert story.schemas.body_bytes == 6
    found = story.schemas.by_fingerprint(story.schemas.version("a", 2).fingerprint)
    assert found is not None
    assert found == story.schemas.by_id(2)
    assert story.schemas.by_fingerprint(b"none") is None


def test_what_has_changed_since_it_was_looked_at_is_looked_at_again():
    story = SchemaStory()
    story.register("a", "one")
    seen = story.machine.position
    assert story.schemas.changed("a") == seen
    assert story.register("a", "two", seen=seen) == (2, 2)
    assert story.register("a", "three", seen=seen) == LOOK_AGAIN
    assert story.register("b", "three", seen=seen) == (3, 1)
    assert story.register("a", "three", seen=story.machine.position) == (3, 3)


def test_what_is_there_already_is_said_however_long_ago_one_looked():
    story = SchemaStory()
    story.register("a", "one")
    seen = story.machine.position
    story.register("a", "two")
    assert story.register("a", "one", seen=seen) == (1, 1)


@pytest.mark.parametrize("subject", ["a", ""])
def test_a_rule_that_changes_makes_look_again(subject: str):
    story = SchemaStory()
    story.register("a", "one")
    seen = story.machine.position
    assert story.rule(subject, compatibility="FULL") == DONE
    assert story.register("a", "two", seen=seen) == LOOK_AGAIN
    assert story.register("a", "two", seen=story.machine.position) == (2, 2)


def test_a_subject_of_which_nothing_is_left_has_changed_too():
    story = SchemaStory()
    story.rule("a", mode="READWRITE")
    seen = story.machine.position
    story.rule("a", mode="")
    assert story.schemas.changed("a") > seen
    assert story.register("a", "one", seen=seen) == LOOK_AGAIN


def test_rules_are_set_one_by_one_and_taken_back():
    story = SchemaStory()
    assert story.schemas.rules("a") == ("", "")
    story.rule("a", compatibility="NONE")
    story.rule("a", mode="IMPORT")
    assert story.schemas.rules("a") == ("NONE", "IMPORT")
    assert story.schemas.subjects(deleted=True) == []
    story.rule("a", compatibility="")
    assert story.schemas.rules("a") == ("", "IMPORT")
    story.rule("", compatibility="FULL_TRANSITIVE")
    assert story.schemas.rules("") == ("FULL_TRANSITIVE", "")


@pytest.mark.parametrize(
    ("subject", "compatibility", "mode"),
    [("a", "HALF", None), ("a", None, "OPEN"), ("x" * 256, "FULL", None), ("a\n", "FULL", None)],
)
def test_rules_that_make_no_sense_are_refused(subject: str, compatibility, mode):
    story = SchemaStory()
    outcome = story.rule(subject, compatibility, mode)
    assert isinstance(outcome, Rejected)
    assert outcome.error == NO_SENSE
    assert story.schemas.rules(subject) == ("", "")


def test_a_version_is_hidden_before_it_is_forgotten():
    story = SchemaStory()
    story.register("a", "one")
    story.register("a", "two")
    assert story.delete("a", 1, permanent=True) == NOT_HIDDEN
    assert story.delete("a", 1) == (1,)
    assert story.delete("a", 1) == NOT_THERE
    assert story.schemas.versions("a") == [2]
    assert story.schemas.versions("a", deleted=True) == [1, 2]
    assert story.schemas.version("a", 1) is None
    assert story.schemas.version("a", 1, deleted=True).deleted
    assert story.schemas.by_id(1) is not None
    assert (story.schemas.uses(1), story.schemas.uses(1, deleted=True)) == ([], [("a", 1)])
    assert story.delete("a", 1, permanent=True) == (1,)
    assert story.schemas.by_id(1) is None
    assert story.schemas.body_bytes == 3
    assert story.register("a", "one") == (3, 3)


def test_a_whole_subject_goes_with_its_rules():
    story = SchemaStory()
    story.rule("a", compatibility="NONE")
    for text in ("one", "two", "three"):
        story.register("a", text)
    story.delete("a", 2)
    assert story.delete("a", permanent=True) == NOT_HIDDEN
    assert story.delete("a") == (1, 3)
    assert story.schemas.rules("a") == ("", "")
    assert story.schemas.subjects() == []
    assert story.schemas.subjects(deleted=True) == ["a"]
    assert story.delete("a") == NOT_THERE
    assert story.register("a", "one") == (1, 4)
    assert story.delete("a") == (4,)
    assert story.delete("a", permanent=True) == (1, 2, 3, 4)
    assert story.delete("a", permanent=True) == NOT_THERE
    assert story.schemas.subjects(deleted=True) == []
    assert story.register("a", "one") == (4, 1)


def test_an_id_is_never_given_out_twice():
    story = SchemaStory()
    for round_ in range(3):
        assert story.register("a", "one") == (round_ + 1, 1)
        story.delete("a")
        story.delete("a", permanent=True)
        assert len(story.schemas) == 0


def test_what_a_schema_refers_to_stays():
    story = SchemaStory()
    story.register("common", "c")
    to_common = Reference("c", "common", 1)
    assert story.register("a", "one", Reference("c", "common", 2)) == NOT_THERE
    assert story.register("a", "one", Reference("c", "common", LATEST)) == NOT_THERE
    assert story.register("a", "one", to_common) == (2, 1)
    assert story.schemas.referenced_by("common", 1) == [2]
    assert story.delete("common", 1) == REFERRED_TO
    assert story.delete("common") == REFERRED_TO
    story.delete("a")
    assert story.schemas.referenced_by("common", 1) == []
    assert story.schemas.referenced_by("common", 1, deleted=True) == [2]
    assert story.delete("common") == (1,)
    assert story.delete("common", permanent=True) == REFERRED_TO
    assert story.register("b", "one", to_common) == NOT_THERE
    story.delete("a", permanent=True)
    assert story.delete("common", permanent=True) == (1,)
    assert story.schemas.referenced_by("common", 1, deleted=True) == []


def test_a_subject_that_refers_to_itself_may_go_as_a_whole():
    story = SchemaStory()
    story.register("a", "one")
    story.register("a", "two", Reference("first", "a", 1))
    assert story.delete("a", 1) == REFERRED_TO
    assert story.delete("a") == (1, 2)
    assert story.delete("a", permanent=True) == (1, 2)


def test_ids_and_versions_may_be_given():
    story = SchemaStory()
    assert story.register("a", "one", schema_id=7, version=3) == (7, 3)
    assert story.register("a", "two", schema_id=5, version=2) == (5, 2)
    assert story.schemas.versions("a") == [2, 3]
    assert story.register("a", "one", schema_id=7, version=3) == (7, 3)
    assert story.register("a", "one", schema_id=8) == TAKEN
    assert story.register("a", "three", schema_id=7) == TAKEN
    assert story.register("a", "three", version=3) == TAKEN
    assert story.register("b", "one", schema_id=8) == TAKEN
    assert story.register("b", "one", schema_id=7) == (7, 1)
    assert story.register("a", "three") == (8, 4)
    assert story.register("c", "last", schema_id=SCHEMA_ID_MAX) == (SCHEMA_ID_MAX, 1)
    assert story.register("c", "one too many") == NO_ROOM


@pytest.mark.parametrize(
    "bound", ["SCHEMAS_MAX", "SCHEMA_BODIES_MAX", "SCHEMA_BODY_MAX", "REFERENCES_MAX"]
)
def test_schemas_are_bounded(monkeypatch: pytest.MonkeyPatch, bound: str):
    story = SchemaStory()
    to_a = Reference("a", "a", 1)
    story.register("a", "1234")
    monkeypatch.setattr(schemas, bound, {"SCHEMAS_MAX": 1, "REFERENCES_MAX": 1}.get(bound, 4))
    refused = story.register("b", "12345", to_a, to_a._replace(name="b"))
    assert refused == (NO_SENSE if bound == "REFERENCES_MAX" else NO_ROOM)
    assert story.register("a", "1234") == (1, 1)
    assert len(story.schemas) == 1


@pytest.mark.parametrize("subject", ["", "x" * 256, "a\x00b"])
def test_a_subject_has_a_name_that_can_be_told(subject: str):
    assert SchemaStory().register(subject, "one") == NO_SENSE


def test_a_subject_goes_after_one_look_at_each_schema_however_often_these_refer_to_it(monkeypatch):
    story = SchemaStory()
    first = [story.register("s", f"first {number}") for number in range(5)]
    references = [Reference(f"n{version}", "s", version) for _, version in first]
    for number in range(20):
        story.register("s", f"one {number}", *references)
    looked = []
    uses = Schemas.uses

    def counted(self, schema_id, *, deleted=False):
        looked.append(schema_id)
        return uses(self, schema_id, deleted=deleted)

    monkeypatch.setattr(Schemas, "uses", counted)
    assert story.delete("s") == tuple(range(1, 26))
    assert len(looked) == 20
