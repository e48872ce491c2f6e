"""A broker's settings: logs, and the defaults of topics. Written as table.py says."""

TABLE = """\
log.dir: string = /tmp/kafka-logs (engine)
    The folder of the data, if log.dirs is not set.
log.dirs: string (engine)
    The folders of the data, separated by commas.
log.dir.failure.timeout.ms: long 1.. = 30000
    A broker that cannot report a failed folder for so long stops.
log.segment.bytes: int 1048576.. = 1073741824 (honoured, cluster-wide)
    How large a segment grows before the next one begins.
log.roll.ms: long (honoured, cluster-wide)
    How old a segment grows before the next one begins.
log.roll.hours: int 1.. = 168 (honoured)
    log.roll.ms in hours, used if that is not set.
log.roll.jitter.ms: long (cluster-wide)
    Up to so much earlier a segment may end, so that not all end at once.
log.roll.jitter.hours: int 0.. = 0
    log.roll.jitter.ms in hours, used if that is not set.
log.segment.delete.delay.ms: long 0.. = 60000 (cluster-wide)
    How long the files of a deleted segment stay on disk.
log.retention.ms: long (honoured, cluster-wide)
    How long records are kept; -1 keeps them for ever.
log.retention.minutes: int (honoured)
    log.retention.ms in minutes, used if that is not set.
log.retention.hours: int = 168 (honoured)
    log.retention.ms in hours, used if neither that nor log.retention.minutes is set.
log.retention.bytes: long = -1 (honoured, cluster-wide)
    How large a partition may be before its oldest segments go; -1 is without limit.
log.retention.check.interval.ms: long 1.. = 300000 (honoured)
    How often the broker looks for segments that can be deleted.
log.local.retention.ms: long -2.. = -2 (cluster-wide)
    How long records stay on the broker once they are remote; -2 means log.retention.ms.
log.local.retention.bytes: long -2.. = -2 (cluster-wide)
    How much stays on the broker once it is remote; -2 means log.retention.bytes.
log.cleanup.policy: list of compact delete = delete (honoured, cluster-wide)
    Whether old segments are deleted, compacted by key, or both.
log.index.interval.bytes: int 0.. = 4096 (honoured, cluster-wide)
    After so many bytes the index gets another entry.
log.index.size.max.bytes: int 4.. = 10485760 (cluster-wide)
    How large an index may be.
log.preallocate: boolean = false (cluster-wide)
    Whether a new segment's file is made in its full size.
log.flush.interval.messages: long 1.. = 9223372036854775807 (honoured, cluster-wide)
    1 flushes to disk before every acknowledgement; more leaves flushing to the system.
log.flush.interval.ms: long (cluster-wide)
    How long a record may wait to be flushed to disk.
log.flush.scheduler.interval.ms: long = 9223372036854775807
    How often the broker looks for logs that need to be flushed.
log.flush.offset.checkpoint.interval.ms: int 0.. = 60000
    How often it is written down how far logs are flushed.
log.flush.start.offset.checkpoint.interval.ms: int 0.. = 60000
    How often it is written down where logs begin.
log.initial.task.delay.ms: long 0.. = 30000 (internal)
    For tests: how long the first round of retention, flushes and checkpoints waits.
log.message.timestamp.type: string of CreateTime LogAppendTime = CreateTime (honoured, cluster-wide)
    Whether records carry the producer's time or the time of their appending.
log.message.timestamp.before.max.ms: long 0.. = 9223372036854775807 (honoured, cluster-wide)
    How far a record's time may lie behind the broker's clock.
log.message.timestamp.after.max.ms: long 0.. = 3600000 (honoured, cluster-wide)
    How far a record's time may lie ahead of the broker's clock.
log.cleaner.enable: boolean = true
    Whether logs are compacted at all.
log.cleaner.threads: int 0.. = 1 (cluster-wide)
    How many threads compact logs.
log.cleaner.backoff.ms: long 0.. = 15000 (cluster-wide)
    How long the cleaner rests when there is nothing to compact.
log.cleaner.min.cleanable.ratio: double 0..1 = 0.5 (honoured, cluster-wide)
    A log is compacted when at least this part of it is new since the last time.
log.cleaner.min.compaction.lag.ms: long 0.. = 0 (honoured, cluster-wide)
    How long a record is safe from compaction.
log.cleaner.max.compaction.lag.ms: long 1.. = 9223372036854775807 (honoured, cluster-wide)
    After so much time a record must be compacted.
log.cleaner.delete.retention.ms: long 0.. = 86400000 (honoured, cluster-wide)
    How long compaction keeps the mark that a key was deleted.
log.cleaner.dedupe.buffer.size: long = 134217728 (cluster-wide)
    How much memory the cleaner may use to remember keys.
log.cleaner.io.buffer.size: int 0.. = 524288 (cluster-wide)
    How much memory the cleaner may use to read and write.
log.cleaner.io.buffer.load.factor: double = 0.9 (cluster-wide)
    How full the cleaner's memory of keys may become.
log.cleaner.io.max.bytes.per.second: double = 1.7976931348623157E308 (cluster-wide)
    How fast the cleaner may read and write.
compression.type: string of uncompressed zstd lz4 snappy gzip producer = producer (honoured, cluster-wide)
    How the broker stores batches: in this compression, or as the producer sent them.
compression.gzip.level: int 1..9 or -1 = -1 (honoured, cluster-wide)
    How hard gzip tries when the broker compresses.
compression.lz4.level: int 1..17 = 9 (honoured, cluster-wide)
    How hard lz4 tries when the broker compresses.
compression.zstd.level: int -131072..22 = 3 (honoured, cluster-wide)
    How hard zstd tries when the broker compresses.
message.max.bytes: int 0.. = 1048588 (honoured, cluster-wide)
    The largest batch of records that is accepted.
min.insync.replicas: int 1.. = 1 (honoured, cluster-wide)
    With acks=all, so many replicas must be in sync or the write is refused.
producer.id.expiration.ms: int 1.. = 86400000 (honoured, cluster-wide)
    How long a partition remembers a producer that has gone quiet.
producer.id.expiration.check.interval.ms: int 1.. = 600000 (internal)
    How often partitions forget producers that have been quiet for too long.
num.recovery.threads.per.data.dir: int 1.. = 2 (cluster-wide)
    How many threads per folder recover logs at start and flush them at the end.
"""  # noqa: E501
