"""Tokens of files, which change."""

import logging

import pytest

from broker.config.values import SettingsError
from broker.http.tokens import Tokens

FIRST, SECOND = "the-first-of-the-tokens", "another-one-of-the-tokens"


class Files:
    """What there is to read."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def read(self, location: str) -> str:
        if location not in self.texts:
            raise FileNotFoundError(2, "No such file or directory")
        return self.texts[location]


def tokens_of(files: Files) -> Tokens:
    tokens = Tokens(files.read)
    tokens.add_file("User:ann", "http.tokens", "ann")
    return tokens


def test_a_token_is_its_users_and_others_are_nobodys() -> None:
    tokens = tokens_of(Files(ann=f"{FIRST}\n"))
    tokens.add("User:bob", SECOND)
    assert tokens.principal_of(FIRST) == "User:ann"
    assert tokens.principal_of(SECOND) == "User:bob"
    for other in ("", FIRST[:-1], f"{FIRST}x", FIRST.upper(), "\udce9"):
        assert tokens.principal_of(other) is None


def test_a_file_may_have_the_next_token_beside_the_one_it_replaces() -> None:
    tokens = tokens_of(Files(ann=f"{FIRST}\n\n{SECOND}\n"))
    assert tokens.principal_of(FIRST) == tokens.principal_of(SECOND) == "User:ann"


def test_what_a_file_has_no_more_is_no_token_any_more() -> None:
    files = Files(ann=FIRST)
    tokens = tokens_of(files)
    files.texts["ann"] = SECOND
    tokens.look()
    assert tokens.principal_of(FIRST) is None
    assert tokens.principal_of(SECOND) == "User:ann"


@pytest.mark.parametrize("text", [None, "", "short", "é" * 20])
def test_a_file_that_cannot_be_used_leaves_the_tokens_and_is_told_of_once(
    text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(ann=FIRST)
    tokens = tokens_of(files)
    files.texts = {} if text is None else {"ann": text}
    tokens.look()
    tokens.look()
    assert tokens.principal_of(FIRST) == "User:ann"
    (told,) = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert told.startswith("the tokens stay as they were: http.tokens: ")
    assert not text or text not in told


def test_a_file_that_is_missing_at_the_start_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match=r"http\.tokens: cannot read ann: No such file"):
        tokens_of(Files())
