"""What every declaration of an API must be, whatever the API."""

import dataclasses
import typing
from pathlib import Path

import pytest

from broker import api_reference, handlers
from broker.api import Resource, Right
from broker.handlers import SERVED
from protocol import apis, messages
from protocol.messages import hot

FOLDER = Path(handlers.__file__).parent


def shape(api):
    name = f"{api.name}Request"
    return getattr(messages, name, None) or getattr(hot, name)


def element(kind):
    """The shape within list[X], X | None and the like."""
    arguments = [each for each in typing.get_args(kind) if each is not type(None)]
    return element(arguments[0]) if arguments else kind


def rights(api):
    for right in api.rights:
        each = right
        while each is not None:
            yield each
            each = each.instead


def test_every_module_of_a_handler_is_served():
    modules = {file.stem for file in FOLDER.glob("*.py")} - {"__init__"}
    served = {
        name
        for name, module in vars(handlers).items()
        if getattr(module, "API", None) in SERVED.values()
    }
    assert modules == served


def test_apis_are_listed_in_the_order_of_their_keys_as_kafka_lists_them():
    assert list(SERVED) == sorted(SERVED) == list(apis.APIS)


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_rights_name_fields_that_the_request_has(api):
    for right in rights(api):
        for path in right.paths:
            kind = shape(api)
            for part in path.split("."):
                name = part.removesuffix("[]")
                hints = typing.get_type_hints(kind)
                assert name in hints, f"{kind.__name__} has no field {name}"
                is_list = "list" in str(hints[name])
                assert is_list == part.endswith("[]"), path
                kind = element(hints[name])
            assert not dataclasses.is_dataclass(kind), f"{path} is no name"


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_only_rights_to_the_cluster_have_no_names_unless_all_are_listed(api):
    listings = {"ListGroups", "ListTransactions", "InitProducerId", "DescribeDelegationToken"}
    nameless: list[Right] = [right for right in rights(api) if not right.paths]
    assert all(right.resource is Resource.CLUSTER for right in nameless) or api.name in listings


def test_the_page_of_apis_is_what_the_declarations_say():
    assert api_reference.PAGE.read_text() == api_reference.page(), (
        "run python -m broker.api_reference"
    )
