"""The reliable client: a producer that never loses silently, a consumer that commits what is done.

    errors.py  classification.py    one tree; every code of Kafka and librdkafka is of one kind
    connecting.py  why brokers cannot be reached, from the lines that librdkafka logs
    record.py  headers.py  metrics.py
    producing/   Producer: deliveries, giving up as a decision, the spool, transactions
    consuming/   Consumer: one poll thread, workers, commits of contiguous finished offsets
    retrying/    what becomes of a record whose handler raised: again, retry topics, dead letters
    stores/      data and offsets together: SQLite, PostgreSQL, files, Redis; deduplication

Built on confluent-kafka, which does the talking.
"""
