"""A broker's settings: transactions, and the state of share groups. Written as table.py says."""

TABLE = """\
transaction.state.log.num.partitions: int 1.. = 50 (honoured)
    How many partitions the topic of transactions has.
transaction.state.log.replication.factor: short 1.. = 3 (honoured)
    How many replicas the topic of transactions has.
transaction.state.log.min.isr: int 1.. = 2 (honoured)
    How many replicas of the topic of transactions must be in sync to write to it.
transaction.state.log.segment.bytes: int 1.. = 104857600 (honoured)
    How large a segment of the topic of transactions grows.
transaction.state.log.load.buffer.size: int 1.. = 5242880
    How much is read at once when a coordinator takes over a partition of transactions.
transaction.max.timeout.ms: int 1.. = 900000 (honoured)
    The longest timeout that a producer may choose for its transactions.
transaction.abort.timed.out.transaction.cleanup.interval.ms: int 1.. = 10000 (honoured)
    How often the coordinator looks for transactions that have timed out.
transaction.remove.expired.transaction.cleanup.interval.ms: int 1.. = 3600000 (honoured)
    How often the coordinator looks for transactional ids that have expired.
transactional.id.expiration.ms: int 1.. = 604800000 (honoured)
    How long a transactional id is remembered without being used.
transaction.partition.verification.enable: boolean = true (honoured, cluster-wide)
    Whether a partition asks the coordinator if a transaction is open before it takes its records.
transaction.two.phase.commit.enable: boolean = false
    Whether transactions may be prepared for an outside coordinator and be without a timeout.
add.partitions.to.txn.retry.backoff.ms: int 1.. = 20
    The pause before the broker tries again to add a partition to a transaction.
add.partitions.to.txn.retry.backoff.max.ms: int 0.. = 100
    How long the broker tries to add a partition to a transaction.
share.coordinator.state.topic.num.partitions: int 1.. = 50
    How many partitions the topic of share groups' state has.
share.coordinator.state.topic.replication.factor: short 1.. = 3
    How many replicas the topic of share groups' state has.
share.coordinator.state.topic.min.isr: short 1.. = 2
    How many replicas of the topic of share groups' state must be in sync to write to it.
share.coordinator.state.topic.segment.bytes: int 1.. = 104857600
    How large a segment of the topic of share groups' state grows.
share.coordinator.state.topic.compression.codec: int = 0
    The number of the compression of the topic of share groups' state; 0 is none.
share.coordinator.state.topic.prune.interval.ms: int 1.. = 300000 (internal)
    How often records that are no longer needed are removed from the topic of share groups' state.
share.coordinator.snapshot.update.records.per.snapshot: int 0.. = 500
    After so many changes the state of a share group is written as a whole.
share.coordinator.cold.partition.snapshot.interval.ms: int 1.. = 300000 (internal)
    How often the state of share partitions that rest is written as a whole.
share.coordinator.load.buffer.size: int 1.. = 5242880
    How much is read at once when a coordinator takes over a partition of share groups' state.
share.coordinator.append.linger.ms: int 0.. = 5
    How long the share coordinator collects records before it writes them.
share.coordinator.threads: int 1.. = 1
    How many threads keep the state of share groups.
share.coordinator.write.timeout.ms: int 1.. = 5000
    How long a write of share groups' state waits for its replicas.
"""
