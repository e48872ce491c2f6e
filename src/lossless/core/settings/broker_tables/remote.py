"""A broker's settings: remote storage of old segments. Written as table.py says."""

TABLE = """\
remote.log.storage.system.enable: boolean = false
    Whether old segments can be kept in remote storage.
remote.log.storage.manager.class.name: string non-empty
    The class that stores segments remotely.
remote.log.storage.manager.class.path: string
    Where the class that stores segments remotely is found.
remote.log.storage.manager.impl.prefix: string non-empty = rsm.config.
    Settings that begin so are passed to the class that stores segments remotely.
remote.log.metadata.manager.class.name: string non-empty = org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    The class that knows which segments are remote.
remote.log.metadata.manager.class.path: string
    Where the class that knows which segments are remote is found.
remote.log.metadata.manager.impl.prefix: string non-empty = rlmm.config.
    Settings that begin so are passed to the class that knows which segments are remote.
remote.log.metadata.manager.listener.name: string non-empty
    The listener by which that class reaches its own broker.
remote.log.metadata.custom.metadata.max.bytes: int 0.. = 128
    How much a storage plugin may note with a segment.
remote.log.index.file.cache.total.size.bytes: long 1.. = 1073741824 (cluster-wide)
    How much disk the indexes of remote segments may take.
remote.log.manager.thread.pool.size: int 1.. = 2
    How many threads of followers look up how far a log was copied.
remote.log.manager.copier.thread.pool.size: int 1.. = 10 (cluster-wide)
    How many threads copy segments to remote storage.
remote.log.manager.expiration.thread.pool.size: int 1.. = 10 (cluster-wide)
    How many threads delete expired remote segments.
remote.log.manager.task.interval.ms: long 1.. = 30000
    How often segments are copied to remote storage or removed from it.
remote.log.manager.task.retry.backoff.ms: long 1.. = 500 (internal)
    The first pause before a remote task is tried again.
remote.log.manager.task.retry.backoff.max.ms: long 1.. = 30000 (internal)
    The longest pause before a remote task is tried again.
remote.log.manager.task.retry.jitter: double 0..0.5 = 0.2 (internal)
    How far chance moves the pause before a remote task is tried again.
remote.log.manager.copy.max.bytes.per.second: long 1.. = 9223372036854775807 (cluster-wide)
    How fast segments are copied to remote storage.
remote.log.manager.copy.quota.window.num: int 1.. = 11
    How many samples the speed of copying is measured over.
remote.log.manager.copy.quota.window.size.seconds: int 1.. = 1
    How long a sample of the speed of copying is.
remote.log.manager.fetch.max.bytes.per.second: long 1.. = 9223372036854775807 (cluster-wide)
    How fast remote segments are read.
remote.log.manager.fetch.quota.window.num: int 1.. = 11
    How many samples the speed of remote reading is measured over.
remote.log.manager.fetch.quota.window.size.seconds: int 1.. = 1
    How long a sample of the speed of remote reading is.
remote.log.reader.threads: int 1.. = 10 (cluster-wide)
    How many threads read remote segments.
remote.log.reader.max.pending.tasks: int 1.. = 100
    How many remote reads may wait.
remote.fetch.max.wait.ms: int 1.. = 500 (cluster-wide)
    How long a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms: long 1.. = 30000 (cluster-wide)
    How long a search for offsets waits for remote storage.
"""  # noqa: E501
