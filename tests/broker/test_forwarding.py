"""What brokers hand on to the controller."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

import lossless
from lossless.core.error_codes import Error
from lossless.engines.local.in_process import InProcessCluster
from lossless.wire import create_topics
from lossless.wire.codec import Fields
from lossless.wire.context import Call


def test_what_a_controller_did_not_get_done_before_it_resigned_is_asked_of_the_next() -> None:
    with lossless.cluster(brokers=1) as kafka:
        assert isinstance(kafka, InProcessCluster)
        controller = kafka._nodes[1].controller
        assert controller is not None
        create = controller._forwarded[create_topics.KEY]
        asked: list[Call] = []

        async def resigns_first(call: Call) -> Fields:
            asked.append(call)
            if len(asked) == 1:
                return {"topics": [{"name": "orders", "error_code": Error.NOT_CONTROLLER}]}
            return await create(call)

        controller._forwarded[create_topics.KEY] = resigns_first
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        assert len(asked) == 2
