"""The table of APIs, and the header versions that follow from it."""

import dataclasses

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from tests.protocol import kio_oracle


def test_produce_is_advertised_from_zero_and_served_from_three_kafka_18659():
    assert apis.APIS[apis.PRODUCE].min_version == 0
    assert not apis.is_served(apis.PRODUCE, 2)
    assert apis.is_served(apis.PRODUCE, 3)
    assert not apis.is_served(apis.PRODUCE, 14)


def test_an_unknown_key_is_not_served():
    assert not apis.is_served(999, 0)


@pytest.mark.parametrize("key_version", kio_oracle.VERSIONS, ids=str)
def test_header_versions_and_flexibility_are_those_of_kios_schemas(key_version):
    key, version = key_version
    request = kio_oracle.message_class(key, version, "request")
    response = kio_oracle.message_class(key, version, "response")
    assert request.__flexible__ == apis.is_flexible(key, version)
    assert request.__header_schema__.__version__ == apis.request_header_version(key, version)
    assert response.__header_schema__.__version__ == apis.response_header_version(key, version)


def test_an_answer_of_api_versions_has_the_oldest_header_kip_511():
    assert apis.response_header_version(apis.API_VERSIONS, 4) == 0
    assert apis.request_header_version(apis.API_VERSIONS, 4) == 2


def test_names_are_those_of_the_messages():
    for api in apis.APIS.values():
        assert kio_oracle.message_class(api.key, api.max_version, "request").__api_key__ == api.key


def test_error_codes_are_those_of_kios_schemas():
    assert {code.value: code.name for code in ErrorCode} == {
        code.value: code.name.upper() for code in kio_oracle.KioErrorCode
    }


def test_rows_are_in_order_of_their_keys():
    assert list(apis.APIS) == sorted(apis.APIS)
    assert not dataclasses.is_dataclass(apis.Api)
