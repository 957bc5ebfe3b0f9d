"""The arguments of `frazil schema`, and of all commands that ask a schema registry.

What a command needs is imported when it is called.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.cli.arguments import (
    Add,
    FailedError,
    Parser,
    add_settings_file,
    add_yes,
    checked,
    confirm,
    needed,
    on_agent,
    tool,
    whole,
)
from broker.cli.completion import TIMEOUT_MS

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.cli.schemas.registry import Registry
    from broker.cli.schemas.schema_tool import NewSchema, Rule

INT_MAX: Final = (1 << 31) - 1
KINDS: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""What we call a type of schemas, and what registries do."""
_SUFFIXES: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
"""Not each registry has all."""
_REFERENCE: Final = "{name, subject, version}"


class _Reference(NamedTuple):
    name: str
    subject: str
    version: int


def add_schema(commands: Any) -> None:
    """`frazil schema`, with its commands."""
    names = "list, describe, get, create, check, delete, compatibility, mode"
    text = f"subjects and schemas of a schema registry: {names}"
    add = tool(commands, "schema", text, need=f"what of them? {names} (frazil schema --help)")
    listing = add("list", _list, "all subjects: their versions, and the type of the newest")
    listing.add_argument(
        "--deleted", action="store_true", help="and what is deleted, not forgotten"
    )
    _add_json(listing, "a list of {subject, type, versions: [number], deleted: [number]}")
    _add_place(listing)
    describing = add(
        "describe", _describe, "a version of a subject: its id, type, references, text"
    )
    _add_subject(describing)
    _add_version(describing, "(latest)")
    text = f"{{subject, version, versions: [number], id, type, references: [{_REFERENCE}], schema}}"
    _add_json(describing, text)
    _add_place(describing)
    getting = add("get", _get, "the text of a schema by its id, as records name it")
    getting.add_argument(
        "--id", type=whole(0, INT_MAX), required=True, metavar="N", dest="schema_id"
    )
    text = f"{{id, type, references: [{_REFERENCE}], subjects: [{{subject, version}}], schema}}"
    _add_json(getting, text)
    _add_place(getting)
    creating = add("create", _create, "register a schema as a subject's next version")
    _add_subject(creating)
    _add_new(creating)
    _add_json(creating, "{subject, id, version, is_new}")
    _add_place(creating)
    text = "whether a subject would take a schema: 0 yes, 1 no, with the registry's reasons"
    checking = add("check", _check, text)
    _add_subject(checking)
    _add_new(checking)
    _add_version(checking, "beside this one alone (those that the subject's compatibility says)")
    _add_json(checking, "{subject, is_compatible, reasons: [text]}")
    _add_place(checking)
    deleting = add("delete", _delete, "delete a subject, or one of its versions")
    _add_subject(deleting)
    _add_version(deleting, "this one alone (all)")
    text = "forget it for ever: records that name its schemas cannot be read any more"
    deleting.add_argument("--permanent", action="store_true", help=text)
    add_yes(deleting)
    _add_place(deleting)
    _add_rule(add, "compatibility", LEVELS, "what may follow what", _level)
    _add_rule(add, "mode", MODES, "whether schemas may be registered", _mode)


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Where a registry is, beside what `add_cluster` adds."""
    parser.add_argument(
        "--registry",
        type=checked(_url),
        metavar="URL",
        help="the schema registry (http://localhost:8081, or schema.registry.url of --command-config)",
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    add_registry(parser)
    add_settings_file(
        parser,
        "Confluent's tools take them: schema.registry.url, basic.auth.user.info, bearer.auth.token.file,"
        " schema.registry.ssl.*",
    )


def _add_rule(
    add: Add, name: str, values: tuple[str, ...], text: str, rule: Callable[[], "Rule"]
) -> None:
    """`get`, `set` and `delete` of a level or a mode."""
    need = needed(f"what of it? get, set, delete (frazil schema {name} --help)")
    parser = add(name, need, f"{text}: get, set, delete; of all subjects, or of one")
    below = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    def add_below(
        command: str, run: Callable[[argparse.Namespace, "Registry"], "CommandResult"], text: str
    ) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = below.add_parser(command, help=text, description=text)
        one.set_defaults(
            run=lambda options: _on_registry(options, lambda found: run(options, found)),
            name=f"frazil schema {name} {command}",
            rule=rule,
        )
        if command == "set":
            one.add_argument(name, choices=values, type=str.upper, metavar=name.upper())
        _add_subject(one, nargs="?", help="(without one: all that have none of their own)")
        _add_place(one)
        return one

    getting = add_below("get", _get_rule, f"the {name} that holds")
    _add_json(getting, f"{{subject, {name}, is_own}}; subject is null for all")
    setting = add_below("set", _set_rule, f"{', '.join(values)}")
    setting.set_defaults(value_name=name, force=False)
    if name == "mode":
        setting.add_argument("--force", action="store_true", help="also where there are schemas")
    add_below("delete", _delete_rule, "what was set for it holds no longer")


def _add_json(parser: argparse.ArgumentParser, shape: str) -> None:
    parser.add_argument("--json", action="store_true", help=shape)


def _add_subject(parser: argparse.ArgumentParser, **how: Any) -> None:
    subject = parser.add_argument("subject", metavar="SUBJECT", **how)
    # argcomplete looks for it there.
    vars(subject)["completer"] = lambda parsed_args, **_: _subjects(parsed_args)


def _add_version(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--version", type=checked(_version), metavar="N|latest", help=text)


def _add_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", type=Path, required=True, metavar="FILE", help="the schema's text"
    )
    text = "(by the file's name: .avsc, .proto, .json)"
    parser.add_argument("--type", choices=tuple(KINDS), dest="kind", help=text)
    parser.add_argument(
        "--reference",
        type=checked(_reference),
        action="append",
        default=[],
        metavar="NAME=SUBJECT:VERSION",
        help="what the schema calls NAME; may be repeated",
    )


def _url(text: str) -> str:
    from broker.client.registry_addresses import is_url

    if "@" in text:
        raise ValueError(
            "a password is a secret: put it into the file of --command-config (basic.auth.user.info)"
        )
    if not is_url(text):
        raise ValueError(f'"{text}" is not an address like http://localhost:8081')
    return text.rstrip("/")


def _version(text: str) -> int | str:
    if text == "latest":
        return text
    if text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= INT_MAX:
        return int(text)
    raise ValueError(f'"{text}" is no version: a number from 1 on, or latest')


def _reference(text: str) -> _Reference:
    name, _, place = text.partition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or version == "latest":
        raise ValueError(f'"{text}" is not NAME=SUBJECT:VERSION')
    return _Reference(name, subject, int(_version(version)))


def new_schema(file: Path, kind: str | None, references: list[_Reference]) -> "NewSchema":
    """Returns the schema in a file. `kind`: of `KINDS`; None: what the file's name says. Raises FailedError."""
    from broker.cli.schemas.schema_tool import NewSchema

    known = _SUFFIXES.get(file.suffix) if kind is None else KINDS[kind]
    if known is None:
        raise FailedError(
            f"the name of {file} does not say what it is: --type avro, protobuf or json"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise FailedError(f"cannot read {file}: {reason}") from error
    return NewSchema(str(file), known, text, [one._asdict() for one in references])


def _on_registry(
    options: argparse.Namespace, command: Callable[["Registry"], "CommandResult"]
) -> int:
    """Run a command on the registry that the arguments mean; print what it says."""
    from broker.cli.schemas.registry import registry_of

    # What says where the registry is counts as --bootstrap does elsewhere: no context is needed.
    options.bootstrap = options.registry
    registry = registry_of(options)
    return on_agent(options, lambda: command(registry))


def _subjects(options: argparse.Namespace) -> list[str]:
    """For completion; none when they cannot be had."""
    from broker.cli.command_result import ToolError
    from broker.cli.schemas.registry import RefusedError, registry_of
    from broker.config.values import SettingsError

    options.timeout_ms = TIMEOUT_MS
    options.bootstrap = options.registry
    try:
        return [str(name) for name in registry_of(options).items("/subjects")]
    except (FailedError, SettingsError, ToolError, RefusedError):
        return []


def _list(options: argparse.Namespace) -> int:
    from broker.cli.schemas import schema_tool

    return _on_registry(
        options,
        lambda registry: schema_tool.list_subjects(
            registry, deleted=options.deleted, as_json=options.json
        ),
    )


def _describe(options: argparse.Namespace) -> int:
    from broker.cli.schemas import schema_tool

    version = options.version or "latest"
    return _on_registry(
        options,
        lambda registry: schema_tool.describe(
            registry, options.subject, version=version, as_json=options.json
        ),
    )


def _get(options: argparse.Namespace) -> int:
    from broker.cli.schemas import schema_tool

    return _on_registry(
        options,
        lambda registry: schema_tool.get(registry, options.schema_id, as_json=options.json),
    )


def _create(options: argparse.Namespace) -> int:
    from broker.cli.schemas import schema_tool

    schema = new_schema(options.file, options.kind, options.reference)
    return _on_registry(
        options,
        lambda registry: schema_tool.create(
            registry, options.subject, schema, as_json=options.json
        ),
    )


def _check(options: argparse.Namespace) -> int:
    from broker.cli.schemas import schema_tool

    schema = new_schema(options.file, options.kind, options.reference)
    return _on_registry(
        options,
        lambda registry: schema_tool.check(
            registry, options.subject, schema, version=options.version, as_json=options.json
        ),
    )


def _delete(options: argparse.Namespace) -> int:
    from broker.cli.schemas import schema_tool

    which = "all versions" if options.version is None else f"version {options.version}"
    how = " for ever" if options.permanent else ""
    confirm(options, f"delete {which} of subject {options.subject}{how}?")
    return _on_registry(
        options,
        lambda registry: schema_tool.delete(
            registry, options.subject, version=options.version, permanent=options.permanent
        ),
    )


def _level() -> "Rule":
    from broker.cli.schemas.schema_tool import LEVEL

    return LEVEL


def _mode() -> "Rule":
    from broker.cli.schemas.schema_tool import MODE

    return MODE


def _get_rule(options: argparse.Namespace, registry: "Registry") -> "CommandResult":
    from broker.cli.schemas.schema_tool import get_rule

    return get_rule(registry, options.rule(), options.subject, as_json=options.json)


def _set_rule(options: argparse.Namespace, registry: "Registry") -> "CommandResult":
    from broker.cli.schemas.schema_tool import set_rule

    value = vars(options)[options.value_name]
    return set_rule(registry, options.rule(), options.subject, value, force=options.force)


def _delete_rule(options: argparse.Namespace, registry: "Registry") -> "CommandResult":
    from broker.cli.schemas.schema_tool import delete_rule

    return delete_rule(registry, options.rule(), options.subject)
