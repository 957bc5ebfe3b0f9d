"""The arguments of `frazil produce` and `frazil consume`.

What a command needs is imported when it is called.
"""

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.cli.arguments import (
    FailedError,
    add_cluster,
    checked,
    datetime_ms,
    named_value,
    whole,
)
from broker.cli.completion import completes_groups, completes_topics
from broker.cli.records.places import EARLIEST, LATEST, Place
from broker.cli.records.record_text import (
    BY_SCHEMA,
    ENCODINGS,
    RecordError,
    json_line,
    template_of,
    unescaped,
)
from broker.cli.schemas.arguments import add_registry

if TYPE_CHECKING:
    from broker.cli.records.record_text import ConsumedRecord

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
INT_MAX: Final = (1 << 31) - 1
LINE_FEED: Final = b"\n"


def add_produce(commands: Any) -> None:
    """`frazil produce`."""
    text = "send records: a line of standard input each, JSON, or whole files"
    parser = commands.add_parser("produce", help=text, description=text)
    parser.set_defaults(run=_produce, name="frazil produce")
    completes_topics(parser.add_argument("topic", metavar="TOPIC"))
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--file", type=Path, metavar="FILE", help="read this, not standard input")
    source.add_argument(
        "--whole", type=Path, nargs="+", default=[], metavar="FILE", help="each file is one value"
    )
    parser.add_argument(
        "--json", action="store_true", help="a line is a record as frazil consume --json writes it"
    )
    parser.add_argument(
        "--keep-partitions", action="store_true", help="with --json: to the partitions that it says"
    )
    parser.add_argument(
        "--key", "-k", type=str.encode, metavar="KEY", help="of records without one"
    )
    parser.add_argument(
        "--key-separator", "-K", type=_delimiter, metavar="TEXT", help="a line is key, TEXT, value"
    )
    parser.add_argument(
        "--delimiter",
        "-D",
        type=_delimiter,
        default=LINE_FEED,
        metavar="TEXT",
        help=r"between records (\n)",
    )
    parser.add_argument(
        "--null",
        type=_bytes,
        metavar="TEXT",
        help="a key or value that is TEXT is null: a tombstone",
    )
    parser.add_argument(
        "--header",
        "-H",
        type=_header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="may be repeated",
    )
    parser.add_argument(
        "--partition", "-p", type=whole(0, INT_MAX), default=-1, metavar="N", help="(by the key)"
    )
    parser.add_argument(
        "--acks", choices=("all", "1", "0"), default="all", help="(all, and idempotent)"
    )
    parser.add_argument("--compression", "-z", choices=COMPRESSIONS, default="none", help="(none)")
    _add_encodings(parser)
    for part in ("key", "value"):
        _add_schema(parser, part)
    add_client(parser)


def add_consume(commands: Any) -> None:
    """`frazil consume`."""
    text = "write the records of topics to standard output"
    parser = commands.add_parser("consume", help=text, description=text)
    parser.set_defaults(run=_consume, name="frazil consume")
    completes_topics(parser.add_argument("topics", nargs="+", metavar="TOPIC"))
    parser.add_argument(
        "--from",
        "-o",
        dest="begin",
        type=checked(place_of),
        default=place_of("earliest"),
        metavar="PLACE",
        help="earliest (without it), latest, 42, -10 for the last ten, or @2026-01-31T08:00:00, @ and ms",
    )
    parser.add_argument(
        "--until",
        type=checked(place_of),
        metavar="PLACE",
        help="and no further; without it: for ever",
    )
    parser.add_argument(
        "--exit",
        "-e",
        dest="until",
        action="store_const",
        const=place_of("latest"),
        help="--until latest",
    )
    parser.add_argument(
        "--count", "-n", type=whole(1, 1 << 62), metavar="N", help="so many records"
    )
    parser.add_argument(
        "--partition",
        "-p",
        dest="partitions",
        type=_partitions,
        metavar="N[,N]",
        help="these partitions alone",
    )
    text = "as a member of it, which commits what was written out"
    completes_groups(parser.add_argument("--group", "-g", metavar="GROUP", help=text))
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="(read_uncommitted, as Kafka's consumers)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a record")
    form.add_argument(
        "--format",
        "-f",
        metavar="TEXT",
        help=r"(%%s\n) with %%t topic, %%p partition, %%o offset, %%T timestamp, %%k key, %%s value, %%h headers,"
        r" %%K and %%S the bytes of key and value",
    )
    parser.add_argument(
        "--null", default="", metavar="TEXT", help="written for a null key or value"
    )
    _add_encodings(parser)
    add_client(parser)


def _add_encodings(parser: argparse.ArgumentParser) -> None:
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-format",
            choices=(*ENCODINGS, *BY_SCHEMA),
            default="raw",
            help="as text (raw); the last three are JSON here, by a schema of the registry there",
        )
    add_registry(parser)


def _add_schema(parser: argparse.ArgumentParser, part: str) -> None:
    """What says by which schema keys or values are written."""
    source = parser.add_mutually_exclusive_group()
    text = f"it is registered as subject TOPIC-{part}, unless that has it"
    source.add_argument(f"--{part}-schema-file", type=Path, metavar="FILE", help=text)
    text = f"(the newest version of subject TOPIC-{part})"
    source.add_argument(f"--{part}-schema-id", type=whole(0, INT_MAX), metavar="N", help=text)
    text = "of a Protobuf schema (its first message)"
    parser.add_argument(f"--{part}-message", metavar="NAME", help=text)


def add_client(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser)
    parser.add_argument(
        "--property",
        "-X",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of librdkafka; may be repeated",
    )


def place_of(text: str) -> Place:
    """Reads a place: `earliest`, `latest`, an offset, `-N` for the last N records of each partition, `@TIME` for the
    first record from then on. Raises ValueError with a sentence."""
    said = text.strip()
    if said.lower() in _WORDS:
        return Place(word=_WORDS[said.lower()])
    if said.startswith("@"):
        return Place(time_ms=_time_ms(said[1:]))
    digits = said.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError(
            f'"{text}" is no place: earliest, latest, 42, -10 for the last ten, or @2026-01-31T08:00:00'
        )
    return Place(last=int(digits)) if said.startswith("-") else Place(offset=int(digits))


_WORDS: Final = {
    "earliest": EARLIEST,
    "beginning": EARLIEST,
    "start": EARLIEST,
    "latest": LATEST,
    "end": LATEST,
}


def _time_ms(text: str) -> int:
    """ms since the epoch, of that number or of ISO 8601."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        return datetime_ms(text)
    except argparse.ArgumentTypeError as error:
        raise ValueError(
            f'"@{text}" is no time: @2026-01-31T08:00:00, or @ and ms since 1970'
        ) from error


def _bytes(text: str) -> bytes:
    return checked(unescaped)(text)


def _delimiter(text: str) -> bytes:
    found = _bytes(text)
    if not found:
        raise argparse.ArgumentTypeError("it is empty")
    return found


def _setting(text: str) -> tuple[str, str]:
    """Others on the machine can read command lines, so no secret is taken from one."""
    name, value = named_value("linger.ms=5")(text)
    if _SECRETS.search(name):
        raise argparse.ArgumentTypeError(
            f"{name} is a secret: put it into the file of --command-config"
        )
    return name, value


_SECRETS: Final = re.compile(r"password|secret|\.pem$|oauthbearer\.config$")


def _header(text: str) -> tuple[str, bytes]:
    name, value = named_value("source=web")(text)
    return name, value.encode()


def _partitions(text: str) -> set[int]:
    one = whole(0, INT_MAX)
    return {one(each) for each in text.split(",")}


def _produce(options: argparse.Namespace) -> int:
    from broker.cli.records.produce_tool import produce

    if options.keep_partitions and not options.json:
        raise FailedError("--keep-partitions wants --json: lines say no partition")
    if options.file is None:
        assert isinstance(sys.stdin.buffer, BufferedReader)
        return produce(options, sys.stdin.buffer)
    try:
        source = options.file.open("rb")
    except OSError as error:
        raise FailedError(f"cannot read {options.file}: {error.strerror}") from error
    with source:
        return produce(options, source)


def _consume(options: argparse.Namespace) -> int:
    from broker.cli.records.consume_tool import consume

    write = _writer(options)
    if options.group is not None:
        _check_group(options)
    # With PYTHONUNBUFFERED standard output writes only as much as goes into a pipe.
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        return consume(options, write, out)


def _check_group(options: argparse.Namespace) -> None:
    """Raises FailedError for what a group decides itself."""
    if options.partitions is not None:
        raise FailedError(
            "--partition and --group exclude each other: a group shares all partitions"
        )
    if not options.begin.word or (options.until is not None and not options.until.word):
        raise FailedError(
            "a group goes on where it is: --from is earliest or latest, for partitions without an offset, and --until"
            " latest (frazil group reset sets offsets)"
        )


def _writer(options: argparse.Namespace) -> Callable[["ConsumedRecord"], bytes]:
    texts = {}
    if {options.key_format, options.value_format} & {*BY_SCHEMA}:
        from broker.cli.records.schema_values import readers_of

        texts = readers_of(options)
    if options.json:
        return partial(json_line, texts=texts) if texts else json_line
    form = r"%s\n" if options.format is None else options.format
    try:
        template = template_of(
            form, key=options.key_format, value=options.value_format, null=options.null, texts=texts
        )
    except RecordError as error:
        raise FailedError(f"--format: {error}") from error
    return template.text
