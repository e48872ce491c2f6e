"""Slow enrichment: 16 at a time, order kept per customer, and what fails is tried again later.

    python examples/slow_enrichment.py                    on a cluster of its own
    python examples/slow_enrichment.py localhost:9092     on yours

The service that is asked takes its time, and sometimes does not answer. A record whose question
failed goes to a retry topic and waits there, while others go on; after the last attempt it is a
dead letter, which `lossless dead-letters list` shows and `replay` sends back.
"""

import sys
import threading
import time

from confluent_kafka.admin import AdminClient, NewTopic

import lossless
from lossless.client.retrying import RetryTopics

CUSTOMERS = [f"customer-{number}" for number in range(40)]
FAILS_ONCE, FAILS_ALWAYS = "customer-7", "customer-13"


def main(servers: str) -> None:
    retry = RetryTopics(delays_s=(1, 2))
    topics = ["orders", *retry.retry_topics("orders"), "orders-dlt"]
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, 3, 3) for topic in topics]).values():
        created.result()

    with lossless.Producer({"bootstrap.servers": servers}) as producer:
        for customer in CUSTOMERS:
            producer.send("orders", b"{}", key=customer)

    asked: dict[str, int] = {}
    lock = threading.Lock()

    def enrich(message):
        customer = message.key().decode()
        with lock:
            asked[customer] = attempt = asked.get(customer, 0) + 1
        time.sleep(0.05)  # the service thinks
        if customer == FAILS_ALWAYS or (customer == FAILS_ONCE and attempt == 1):
            print(f"{customer}: no answer in {message.topic()}", flush=True)
            raise TimeoutError(f"no answer for {customer}")

    settings = {"bootstrap.servers": servers}
    with lossless.Consumer(
        "orders", settings, group="enriching", workers=16, order="key", retry=retry
    ) as consumer:
        running = threading.Thread(target=consumer.run, args=(enrich,))
        running.start()
        numbers = consumer.metrics
        while numbers.finished - numbers.forwarded < len(CUSTOMERS):
            time.sleep(0.1)
        consumer.stop()
        running.join()
    enriched = numbers.finished - numbers.forwarded - numbers.dead_lettered
    print(f"{enriched} enriched, {numbers.dead_lettered} dead letter")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with lossless.cluster() as kafka:
            main(kafka.bootstrap_servers)
