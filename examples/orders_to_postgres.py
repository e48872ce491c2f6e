"""Orders to PostgreSQL: every order is a row once, and the totals add up.

    python examples/orders_to_postgres.py DSN                    on a cluster of its own
    python examples/orders_to_postgres.py DSN localhost:9092     on yours

"Add 10 to the total" is wrong when it is done twice. Rows, totals and the offset are one
transaction, which also compares who owns the partition: of two members that both think they do, one
is refused. After a restart the consumer goes on from what PostgreSQL says, not Kafka.
"""

import json
import sys

import lossless
from lossless.client.stores import PostgresStore

ORDERS = [("ann", 10), ("bob", 25), ("ann", 5), ("cyd", 40), ("bob", 1)]
TOTAL = """
    INSERT INTO totals (customer, total) VALUES (%s, %s)
    ON CONFLICT (customer) DO UPDATE SET total = totals.total + excluded.total"""


def main(dsn: str, servers: str, group: str) -> None:
    with lossless.Producer({"bootstrap.servers": servers}) as producer:
        for customer, amount in ORDERS:
            order = {"customer": customer, "amount": amount}
            producer.send("orders", json.dumps(order).encode(), key=customer.encode())

    store = PostgresStore(dsn)
    store.execute("CREATE TABLE IF NOT EXISTS orders (customer text, amount bigint)")
    store.execute("CREATE TABLE IF NOT EXISTS totals (customer text PRIMARY KEY, total bigint)")
    handled = 0

    def handle(message, unit):
        order = json.loads(message.value())
        row = (order["customer"], order["amount"])
        unit.execute("INSERT INTO orders (customer, amount) VALUES (%s, %s)", row)
        unit.execute(TOTAL, row)
        nonlocal handled
        handled += 1
        if handled >= len(ORDERS):
            consumer.stop()

    settings = {"bootstrap.servers": servers}
    with store, lossless.Consumer("orders", settings, group=group, store=store) as consumer:
        consumer.run(handle)
        for customer, total in store.execute("SELECT * FROM totals ORDER BY customer"):
            print(customer, total)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1], sys.argv[2], group="billing")
    elif len(sys.argv) > 1:
        with lossless.cluster() as kafka:
            # A cluster that is new each time has nothing to do with what earlier ones stored.
            main(sys.argv[1], kafka.bootstrap_servers, group=f"billing-{kafka.bootstrap_servers}")
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
