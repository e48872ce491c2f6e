"""Records of the cluster's metadata, and the image that they amount to."""

from __future__ import annotations

import pytest
from machines import PARTITION, led_by

from lossless.core.admin_messages import ALL_BROKERS, Resource, ResourceKind, broker_resource
from lossless.core.messages import TopicPartition
from lossless.core.metadata import (
    MIN_ISR,
    UNCLEAN,
    Broker,
    BrokerChanged,
    BrokerRegistered,
    BrokerRemoved,
    ConfigChanged,
    Image,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    QuotaChanged,
    TopicCreated,
    TopicRemoved,
    decode,
    encode,
)

EVERY_KIND = (
    BrokerRegistered(1, 77, "rack"),
    BrokerRegistered(2, 78, None),
    BrokerChanged(1, False, True),
    TopicCreated("orders", 3),
    BrokerRemoved(1),
    TopicRemoved("orders"),
    PartitionChanged("orders", 0, PartitionState((1, 2, 3), (1,), 1, 4, 9, (2,), 3)),
    PartitionChanged("orders", 1, PartitionState((1,), (), -1)),
    ConfigChanged("orders", MIN_ISR, "2"),
    ConfigChanged("", "né", None),
    ConfigChanged("1", "log.retention.ms", "5", ResourceKind.BROKER),
    ConfigChanged("billing", "consumer.session.timeout.ms", None, ResourceKind.GROUP),
    QuotaChanged((("client-id", "shop"), ("user", None)), "producer_byte_rate", 1.5),
    QuotaChanged((("ip", None),), "connection_creation_rate", None),
    PartitionChanged("orders", 2, PartitionState((1, 2, 3), (1,), 1, adding=(1,), removing=(2, 3))),
)


def image_of(*records: MetadataRecord) -> Image:
    image = Image()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


@pytest.mark.parametrize("record", EVERY_KIND, ids=lambda record: type(record).__name__)
def test_a_record_is_the_same_after_the_log(record: MetadataRecord) -> None:
    assert decode(encode(record)) == record
    assert type(decode(encode(record))) is type(record)


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (
            PartitionChanged("orders", 0, PartitionState((1, 2), (1,), 1, 4, 9, (2,), 3)),
            b'["PartitionChanged","orders",0,[[1,2],[1],1,4,9,[2],3]]',
        ),
        (ConfigChanged("orders", MIN_ISR, "2"), b'["ConfigChanged","orders","%b","2"]'),
        (ConfigChanged.of(ALL_BROKERS, MIN_ISR, "2"), b'["ConfigChanged","","%b","2"]'),
    ],
)
def test_what_says_nothing_new_is_written_as_ever(record: MetadataRecord, written: bytes) -> None:
    """Logs of clusters that came before have these bytes, and so do the simulator's."""
    written = written.replace(b"%b", MIN_ISR.encode())
    assert encode(record) == written
    assert decode(written) == record


def test_the_offset_of_a_registration_is_the_brokers_epoch() -> None:
    image = Image()
    image.apply(BrokerRegistered(1, 77, "rack"), 42)
    assert image.brokers[1] == Broker(42, 77, "rack", fenced=True, stopping=False)
    assert image.end_offset == 43


def test_a_broker_is_active_when_it_is_neither_fenced_nor_stopping() -> None:
    image = image_of(BrokerRegistered(1, 77, None))
    assert not image.is_active(1)
    image.apply(BrokerChanged(1, False, False), 1)
    assert image.is_active(1)
    image.apply(BrokerChanged(1, False, True), 2)
    assert not image.is_active(1)
    assert not image.is_active(9)


def test_a_broker_that_registers_again_begins_anew() -> None:
    image = image_of(
        BrokerRegistered(1, 77, None), BrokerChanged(1, False, True), BrokerRegistered(1, 78, None)
    )
    assert image.brokers[1] == Broker(2, 78, None)


def test_a_topic_goes_with_its_partitions_and_settings() -> None:
    image = image_of(
        TopicCreated("orders", 0),
        TopicCreated("payments", 1),
        PartitionChanged("orders", 0, led_by(1, 0)),
        PartitionChanged("payments", 0, led_by(2, 0)),
        ConfigChanged("orders", MIN_ISR, "2"),
        ConfigChanged("", MIN_ISR, "3"),
        TopicRemoved("orders"),
    )
    assert image.topics == {"payments": 1}
    assert image.partitions == {TopicPartition("payments", 0): led_by(2, 0)}
    assert image.configs == {ALL_BROKERS: {MIN_ISR: "3"}}


def test_a_setting_of_the_topic_goes_before_the_default_of_all() -> None:
    image = image_of(ConfigChanged("", "key", "all"), ConfigChanged("orders", "key", "own"))
    assert image.config("orders", "key", "none") == "own"
    assert image.config("payments", "key", "none") == "all"
    assert image.config("orders", "other", "none") == "none"
    image.apply(ConfigChanged("orders", "key", None), 2)
    assert image.config("orders", "key", "none") == "all"
    image.apply(ConfigChanged("orders", "key", None), 3)


def test_what_is_set_for_one_resource_is_not_for_another() -> None:
    group = Resource(ResourceKind.GROUP, "1")
    image = image_of(
        ConfigChanged.of(ALL_BROKERS, "key", "all"),
        ConfigChanged.of(broker_resource(1), "key", "own"),
        ConfigChanged.of(group, "key", "group"),
    )
    assert image.overrides(ALL_BROKERS) == {"key": "all"}
    assert image.overrides(broker_resource(1)) == {"key": "own"}
    assert image.overrides(broker_resource(2)) == {}
    assert image.overrides(group) == {"key": "group"}


def test_static_settings_count_where_nothing_was_agreed_on() -> None:
    image = Image({MIN_ISR: "2", UNCLEAN: "TRUE"})
    image.apply(PartitionChanged(*PARTITION, led_by(1, 0)), 0)
    assert image.min_isr(PARTITION) == 2
    assert image.may_elect_unclean(PARTITION)
    image.apply(ConfigChanged("", MIN_ISR, "3"), 1)
    assert image.copy().min_isr(PARTITION) == 3


def test_a_brokers_own_setting_goes_before_that_of_all_and_that_before_what_is_static() -> None:
    image = Image({"log.retention.hours": "1", "log.roll.hours": "1"})
    image.apply(ConfigChanged("", "log.retention.ms", "2"), 0)
    image.apply(ConfigChanged.of(broker_resource(1), "log.retention.ms", "3"), 1)
    assert image.effective_properties() == {"log.roll.hours": "1", "log.retention.ms": "2"}
    assert image.effective_properties(1) == {"log.roll.hours": "1", "log.retention.ms": "3"}


@pytest.mark.parametrize(
    ("resource", "concerned"),
    [(ALL_BROKERS, ""), (broker_resource(1), ""), (Resource(ResourceKind.GROUP, "g"), None)],
)
def test_a_setting_of_brokers_concerns_all_partitions_one_of_a_group_none(
    resource: Resource, concerned: str | None
) -> None:
    assert ConfigChanged.of(resource, "key", "1").topic == concerned


def test_more_in_sync_than_there_are_replicas_means_all_of_them() -> None:
    """B5: since Kafka 3.7."""
    image = image_of(PartitionChanged(*PARTITION, led_by(1, 0)))
    assert image.min_isr(PARTITION) == 1
    image.apply(ConfigChanged("orders", MIN_ISR, "2"), 1)
    assert image.min_isr(PARTITION) == 2
    image.apply(ConfigChanged("orders", MIN_ISR, "5"), 2)
    assert image.min_isr(PARTITION) == 3


def test_unclean_elections_are_off_unless_somebody_turned_them_on() -> None:
    """B3."""
    image = image_of(PartitionChanged(*PARTITION, led_by(1, 0)))
    assert not image.may_elect_unclean(PARTITION)
    image.apply(ConfigChanged("", UNCLEAN, "true"), 1)
    assert image.may_elect_unclean(PARTITION)
    image.apply(ConfigChanged("orders", UNCLEAN, "false"), 2)
    assert not image.may_elect_unclean(PARTITION)


def test_a_copy_goes_its_own_way() -> None:
    image = image_of(*EVERY_KIND[:4])
    copied = image.copy()
    assert (copied.brokers, copied.topics, copied.end_offset) == (image.brokers, image.topics, 4)
    for offset, record in enumerate(EVERY_KIND[4:], 4):
        copied.apply(record, offset)
    assert image.topics == {"orders": 3}
    assert (image.partitions, image.configs, image.end_offset) == ({}, {}, 4)


def test_the_preferred_leader_is_the_first_replica() -> None:
    assert led_by(3, 0, replicas=(2, 3)).preferred == 2


def test_a_partition_is_named_as_its_folder_is() -> None:
    assert str(PARTITION) == "orders-0"
