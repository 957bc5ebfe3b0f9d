"""Lines of sasl.jaas.config, as Kafka reads them."""

import pytest

from broker.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, parse

SECRET = "hunter2"


def test_users_of_plain_are_options_that_begin_so():
    module = parse(
        f'{PLAIN_MODULE} required username="broker" password="x" user_alice="a" user_bob="b";'
    )
    assert module.name == PLAIN_MODULE
    assert module.users() == {"alice": "a", "bob": "b"}


def test_a_module_may_have_no_options():
    assert parse(f"{SCRAM_MODULE} required;").options == {}


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "sufficient", "Optional"])
def test_each_of_javas_flags_is_taken(flag):
    assert parse(f"{SCRAM_MODULE} {flag};").name == SCRAM_MODULE


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"a b"', "a b"),
        ("'a b'", "a b"),
        ("word", "word"),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r'"\101\n"', "A\n"),
        ('"a;b=c"', "a;b=c"),
        ('"//no comment"', "//no comment"),
        (r'"\0="', "\0="),
    ],
)
def test_values_are_written_as_in_java(written, meant):
    assert parse(f"{PLAIN_MODULE} required user_a={written};").users() == {"a": meant}


def test_lines_may_be_broken_and_commented():
    text = f"""
        {PLAIN_MODULE} required  // who may
            user_alice="a"  /* and
            with what */ user_bob="b";
    """
    assert parse(text).users() == {"alice": "a", "bob": "b"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no login module"),
        (PLAIN_MODULE, "begin with a class"),
        (f'{PLAIN_MODULE} user_a="{SECRET}";', "begin with a class"),
        (f'{PLAIN_MODULE} required user_a="{SECRET}"', "semicolon"),
        (f'{PLAIN_MODULE} required user_a "{SECRET}";', "option 1"),
        (f'{PLAIN_MODULE} required x="y" user_a=;', "option 2"),
        (f'{PLAIN_MODULE} required user_a="{SECRET};', "quotation mark"),
        (f'{PLAIN_MODULE} required; {PLAIN_MODULE} required user_a="{SECRET}";', "more than one"),
    ],
)
def test_a_mistake_is_told_without_what_stands_there(text, sentence):
    with pytest.raises(ValueError, match=sentence) as told:
        parse(text)
    assert SECRET not in str(told.value)


def test_a_module_is_shown_without_its_options():
    assert SECRET not in repr(parse(f'{PLAIN_MODULE} required user_a="{SECRET}";'))
