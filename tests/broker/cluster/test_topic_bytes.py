"""Metadata put together from kept topics is what the codec would have made."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster import topic_bytes
from broker.cluster.placement import Agent, Placement
from broker.cluster.topic_bytes import encode_metadata, topic_shape
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    encode_response,
)
from protocol.messages.layouts import at_once
from protocol.types import Position, TopicId

agents = st.lists(
    st.builds(
        Agent,
        node_id=st.integers(0, 50),
        zone=st.sampled_from(["", "a", "b"]),
        rank=st.integers(0, 5),
        host=st.just("h"),
        port=st.just(9092),
    ),
    max_size=5,
)
topics = st.lists(
    st.one_of(
        st.builds(
            Topic,
            topic_id=st.just(TopicId(bytes(16))),
            name=st.text("abc", min_size=1, max_size=200),
            partition_count=st.integers(1, 4),
            configs=st.just({}),
            created=st.just(Position(1)),
        ),
        st.builds(MetadataResponseTopic, error_code=st.integers(1, 100), name=st.text("xyz")),
    ),
    max_size=20,
)


@pytest.mark.parametrize("version", range(14))
@given(agents=agents, found=topics, zone=st.sampled_from(["", "a", "nowhere"]))
def test_kept_topics_make_the_same_bytes_as_the_codec(version, agents, found, zone):
    found = [
        replace(each, topic_id=TopicId(index.to_bytes(16))) if isinstance(each, Topic) else each
        for index, each in enumerate(found)
    ]
    placement = Placement(agents)
    brokers = [MetadataResponseBroker(node_id=each.node_id, host="h") for each in agents]
    head = MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, error_code=5)
    told = {"placement": placement, "zone": zone, "operations": 7}
    for _ in range(2):  # Made, and then kept.
        made = b"".join(at_once(encode_metadata(version, head, found, **told)))
        head.topics = [
            at_once(topic_shape(each, **told)) if isinstance(each, Topic) else each
            for each in found
        ]
        assert made == encode_response(apis.METADATA, version, head)
        head.topics = []


@pytest.mark.parametrize("version", [0, 9, 13])
def test_a_response_may_have_more_topics_than_a_byte_can_count(version):
    placement = Placement([Agent(1, "", 0, "h", 1)])
    found = [
        Topic(TopicId(number.to_bytes(16)), f"t{number}", 1, {}, Position(1))
        for number in range(300)
    ]
    told = {"placement": placement, "zone": "", "operations": 0}
    made = b"".join(at_once(encode_metadata(version, MetadataResponse(), found, **told)))
    whole = MetadataResponse(topics=[at_once(topic_shape(each, **told)) for each in found])
    assert made == encode_response(apis.METADATA, version, whole)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(topic_bytes, "KEPT_BYTES_MAX", 5_000)
    placement = Placement([Agent(1, "", 0, "h", 1)])
    for number in range(200):
        topic = Topic(TopicId(number.to_bytes(16)), f"t{number}", 10, {}, Position(1))
        encode_metadata(12, MetadataResponse(), [topic], placement=placement, zone="", operations=0)
        assert sum(map(len, placement.kept.values())) == placement.kept_bytes <= 5_000
