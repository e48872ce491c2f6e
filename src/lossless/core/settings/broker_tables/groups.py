"""A broker's settings: groups and their offsets. Written as table.py says."""

TABLE = """\
group.initial.rebalance.delay.ms: int = 3000 (honoured)
    How long a new classic group waits for more members before it first divides the partitions.
group.min.session.timeout.ms: int = 6000 (honoured)
    The shortest session timeout that a classic member may choose.
group.max.session.timeout.ms: int = 1800000 (honoured)
    The longest session timeout that a classic member may choose.
group.max.size: int 1.. = 2147483647 (honoured)
    How many members a classic group may have.
group.coordinator.rebalance.protocols: list of consumer classic share streams = classic,consumer,streams (honoured)
    The kinds of groups that are served.
group.coordinator.threads: int 1.. = 4
    How many threads coordinate groups.
group.coordinator.append.linger.ms: int 0.. = 5
    How long the group coordinator collects records before it writes them.
group.consumer.session.timeout.ms: int 1.. = 45000 (honoured)
    A member of a consumer group that is silent for so long is removed.
group.consumer.min.session.timeout.ms: int 1.. = 45000 (honoured)
    The shortest session timeout that can be set for a consumer group.
group.consumer.max.session.timeout.ms: int 1.. = 60000 (honoured)
    The longest session timeout that can be set for a consumer group.
group.consumer.heartbeat.interval.ms: int 1.. = 5000 (honoured)
    How often members of a consumer group are told to report.
group.consumer.min.heartbeat.interval.ms: int 1.. = 5000 (honoured)
    The shortest heartbeat interval that can be set for a consumer group.
group.consumer.max.heartbeat.interval.ms: int 1.. = 15000 (honoured)
    The longest heartbeat interval that can be set for a consumer group.
group.consumer.max.size: int 1.. = 2147483647 (honoured)
    How many members a consumer group may have.
group.consumer.assignors: list = uniform,range (honoured)
    The assignors that the broker offers; the first is used if a member names none.
group.consumer.migration.policy: string of any case DISABLED DOWNGRADE UPGRADE BIDIRECTIONAL = bidirectional
    Whether a group with members can change between the classic and the consumer protocol.
group.consumer.regex.refresh.interval.ms: int 10000.. = 600000 (internal)
    How often subscriptions by pattern are compared with the topics.
group.share.enable: boolean = false (internal)
    Whether share groups are served.
group.share.session.timeout.ms: int 1.. = 45000
    A member of a share group that is silent for so long is removed.
group.share.min.session.timeout.ms: int 1.. = 45000
    The shortest session timeout that can be set for a share group.
group.share.max.session.timeout.ms: int 1.. = 60000
    The longest session timeout that can be set for a share group.
group.share.heartbeat.interval.ms: int 1.. = 5000
    How often members of a share group are told to report.
group.share.min.heartbeat.interval.ms: int 1.. = 5000
    The shortest heartbeat interval that can be set for a share group.
group.share.max.heartbeat.interval.ms: int 1.. = 15000
    The longest heartbeat interval that can be set for a share group.
group.share.max.size: int 1..1000 = 200
    How many members a share group may have.
group.share.max.share.sessions: int 1.. = 2000
    How many share sessions a broker keeps.
group.share.assignors: list = simple
    The assignors of share groups that the broker offers.
group.share.delivery.count.limit: int 2..10 = 5
    How often a record is offered to a share group at most.
group.share.partition.max.record.locks: int 100..10000 = 2000
    How many records of a partition a share group may hold at once.
group.share.record.lock.duration.ms: int 1000..3600000 = 30000
    How long a member of a share group may hold a record.
group.share.min.record.lock.duration.ms: int 1000..30000 = 15000
    The shortest hold on a record that can be set for a share group.
group.share.max.record.lock.duration.ms: int 30000..3600000 = 60000
    The longest hold on a record that can be set for a share group.
group.share.persister.class.name: string = org.apache.kafka.server.share.persister.DefaultStatePersister (internal)
    The class that keeps the state of share groups.
group.streams.session.timeout.ms: int 1.. = 45000
    A member of a streams group that is silent for so long is removed.
group.streams.min.session.timeout.ms: int 1.. = 45000
    The shortest session timeout that can be set for a streams group.
group.streams.max.session.timeout.ms: int 1.. = 60000
    The longest session timeout that can be set for a streams group.
group.streams.heartbeat.interval.ms: int 1.. = 5000
    How often members of a streams group are told to report.
group.streams.min.heartbeat.interval.ms: int 1.. = 5000
    The shortest heartbeat interval that can be set for a streams group.
group.streams.max.heartbeat.interval.ms: int 1.. = 15000
    The longest heartbeat interval that can be set for a streams group.
group.streams.max.size: int 1.. = 2147483647
    How many members a streams group may have.
group.streams.num.standby.replicas: int 0.. = 0
    How many standby copies of its state a streams task has.
group.streams.max.standby.replicas: int 0.. = 2
    The most standby copies that can be set for a streams group.
offsets.topic.num.partitions: int 1.. = 50 (honoured)
    How many partitions the topic of committed offsets has.
offsets.topic.replication.factor: short 1.. = 3 (honoured)
    How many replicas the topic of committed offsets has.
offsets.topic.segment.bytes: int 1.. = 104857600 (honoured)
    How large a segment of the topic of committed offsets grows.
offsets.topic.compression.codec: int = 0
    The number of the compression of the topic of committed offsets; 0 is none.
offsets.retention.minutes: int 1.. = 10080 (honoured)
    How long offsets outlive the last member of their group.
offsets.retention.check.interval.ms: long 1.. = 600000 (honoured)
    How often the coordinator looks for offsets that have expired.
offsets.commit.timeout.ms: int 1.. = 5000
    How long a commit of offsets waits for its replicas.
offsets.load.buffer.size: int 1.. = 5242880
    How much is read at once when a coordinator takes over a partition of offsets.
offset.metadata.max.bytes: int = 4096 (honoured)
    How long the note may be that a consumer commits with an offset.
"""  # noqa: E501
