"""A broker's settings: connections, requests, threads and metrics. Written as table.py says."""

TABLE = """\
socket.request.max.bytes: int 1.. = 104857600 (honoured)
    The largest request that is accepted.
socket.receive.buffer.bytes: int = 102400
    The receive buffer of a client's connection; -1 leaves it to the system.
socket.send.buffer.bytes: int = 102400
    The send buffer of a client's connection; -1 leaves it to the system.
socket.listen.backlog.size: int 1.. = 50
    How many connections may wait to be accepted.
socket.connection.setup.timeout.ms: long = 10000
    How long the node waits at first for a connection to another one.
socket.connection.setup.timeout.max.ms: long = 30000
    How long the node waits at most for a connection to another one.
connections.max.idle.ms: long = 600000 (honoured)
    A connection that is silent for so long is closed.
connections.max.reauth.ms: long = 0
    After so much time a client must authenticate again; 0 is never.
connection.failed.authentication.delay.ms: int 0.. = 100 (honoured)
    How long the answer to a failed authentication is held back.
max.connections: int 0.. = 2147483647 (cluster-wide)
    How many connections the broker accepts.
max.connections.per.ip: int 0.. = 2147483647 (cluster-wide)
    How many connections the broker accepts from one address.
max.connections.per.ip.overrides: string = "" (cluster-wide)
    Other limits for single addresses, as host:limit.
max.connection.creation.rate: int 0.. = 2147483647 (cluster-wide)
    How many new connections per second the broker accepts.
num.network.threads: int 1.. = 3 (cluster-wide)
    How many threads read requests and write answers.
num.io.threads: int 1.. = 8 (cluster-wide)
    How many threads work on requests.
background.threads: int 1.. = 10 (cluster-wide)
    How many threads do what can wait.
queued.max.requests: int 1.. = 500
    How many requests may wait before no more are read.
queued.max.request.bytes: long = -1
    How many bytes of requests may wait before no more are read; -1 is without limit.
request.timeout.ms: int = 30000
    How long the node waits for the answer to a request of its own.
fetch.max.bytes: int 1024.. = 57671680 (honoured)
    How much one answer to a fetch may carry.
max.incremental.fetch.session.cache.slots: int 0.. = 1000
    How many incremental fetch sessions the broker keeps.
max.request.partition.size.limit: int 1.. = 2000
    How many partitions one request may describe.
metric.reporters: list = org.apache.kafka.common.metrics.JmxReporter (cluster-wide)
    Classes that are told of metrics.
metrics.num.samples: int 1.. = 2
    How many samples a metric is computed from.
metrics.recording.level: string = INFO
    How detailed metrics are.
metrics.sample.window.ms: long 1.. = 30000
    How long a metric's sample is.
kafka.metrics.reporters: list = ""
    Classes that are told of the older kind of metrics.
kafka.metrics.polling.interval.secs: int 1.. = 10
    How often reporters of the older kind are to look.
telemetry.max.bytes: int 1.. = 1048576
    How much of its own metrics a client may push at once.
"""
