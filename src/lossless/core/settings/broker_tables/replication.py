"""A broker's settings: replication and quotas. Written as table.py says."""

TABLE = """\
replica.lag.time.max.ms: long = 30000 (honoured)
    A follower that is behind for longer leaves the in-sync set.
replica.fetch.max.bytes: int 0.. = 1048576 (honoured)
    How much a follower asks for per partition.
replica.fetch.min.bytes: int = 1
    How much a leader collects before it answers a follower.
replica.fetch.response.max.bytes: int 0.. = 10485760
    How much one answer to a follower may carry.
replica.fetch.wait.max.ms: int = 500 (honoured)
    How long a leader may hold a follower's fetch when there is nothing new.
replica.fetch.backoff.ms: int 0.. = 1000 (honoured)
    How long a follower pauses after a fetch that failed.
replica.high.watermark.checkpoint.interval.ms: long = 5000 (honoured)
    How often high watermarks are written down.
replica.selector.class: string (honoured)
    Who chooses the replica that a consumer reads from; if not set, it is the leader.
replica.socket.receive.buffer.bytes: int = 65536
    The receive buffer of a follower's connection to a leader.
replica.socket.timeout.ms: int = 30000
    How long a follower waits for a leader to answer.
num.replica.fetchers: int = 1 (cluster-wide)
    How many threads fetch from each other broker.
num.replica.alter.log.dirs.threads: int
    How many threads move replicas between folders.
fetch.purgatory.purge.interval.requests: int = 1000
    After so many requests, fetches that no longer wait are cleared away.
producer.purgatory.purge.interval.requests: int = 1000
    After so many requests, produce requests that no longer wait are cleared away.
delete.records.purgatory.purge.interval.requests: int = 1
    After so many requests, deletions of records that no longer wait are cleared away.
share.fetch.purgatory.purge.interval.requests: int = 1000
    After so many requests, share fetches that no longer wait are cleared away.
quota.window.num: int 1.. = 11
    How many samples clients' quotas are measured over.
quota.window.size.seconds: int 1.. = 1
    How long a sample of clients' quotas is.
replication.quota.window.num: int 1.. = 11
    How many samples the replication quota is measured over.
replication.quota.window.size.seconds: int 1.. = 1
    How long a sample of the replication quota is.
alter.log.dirs.replication.quota.window.num: int 1.. = 11
    How many samples the quota for moves between folders is measured over.
alter.log.dirs.replication.quota.window.size.seconds: int 1.. = 1
    How long a sample of the quota for moves between folders is.
controller.quota.window.num: int 1.. = 11
    How many samples the quota for changes of topics is measured over.
controller.quota.window.size.seconds: int 1.. = 1
    How long a sample of the quota for changes of topics is.
client.quota.callback.class: class
    A class that decides the quotas of clients.
"""
