"""A broker's settings: its place in the cluster, controllers, topics. Written as table.py says."""

TABLE = """\
node.id: int 0.. (engine, required)
    The number of this node, unique in the cluster.
broker.id: int = -1 (engine)
    The older name of node.id.
process.roles: list of broker controller (engine, required)
    Whether this process is a broker, a controller, or both.
broker.rack: string (honoured)
    Where the broker stands: replicas are spread over racks, and consumers may read in their own.
listeners: string = PLAINTEXT://:9092 (engine, per-broker)
    The addresses that the node listens on, each with the name of its listener.
advertised.listeners: string (engine)
    The addresses that clients are told to connect to, if they differ from listeners.
listener.security.protocol.map: string = SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT (engine, per-broker)
    Which security protocol each listener speaks.
inter.broker.listener.name: string (engine)
    The listener that brokers reach each other by.
security.inter.broker.protocol: string of PLAINTEXT SSL SASL_PLAINTEXT SASL_SSL = PLAINTEXT (honoured)
    The security protocol between brokers, if no listener is named for them.
controller.listener.names: string (engine)
    The listeners that controllers are reached by.
early.start.listeners: string
    Listeners that may open before the authorizer is ready.
controller.quorum.voters: list = "" (engine)
    The controllers that vote, as id@host:port.
controller.quorum.bootstrap.servers: list = "" (engine)
    Addresses by which a node first finds the controllers.
controller.quorum.election.timeout.ms: int 0.. = 1000 (honoured)
    How long a voter waits for a leader or for votes before it tries an election.
controller.quorum.fetch.timeout.ms: int 0.. = 2000 (honoured)
    How long a voter goes without a successful fetch before it looks for another leader.
controller.quorum.election.backoff.max.ms: int 0.. = 1000 (honoured)
    The longest pause before the next try after a lost election.
controller.quorum.request.timeout.ms: int 0.. = 2000
    How long a request among controllers may take.
controller.quorum.retry.backoff.ms: int 0.. = 20 (honoured)
    The pause before a failed request among controllers is repeated.
controller.quorum.append.linger.ms: int 0.. = 25
    How long the active controller collects records before it writes them.
broker.heartbeat.interval.ms: int = 2000 (honoured)
    How often a broker tells the controller that it is alive.
broker.session.timeout.ms: int = 9000 (honoured)
    How long the controller waits for a heartbeat before it fences a broker.
initial.broker.registration.timeout.ms: int = 60000
    How long a starting broker tries to register before it gives up.
controlled.shutdown.enable: boolean = true
    Whether a stopping broker first hands its leaderships over.
controller.socket.timeout.ms: int = 30000
    How long a broker waits for the controller to answer.
controller.performance.always.log.threshold.ms: long 0.. = 2000 (internal)
    Controller events that take longer than this are always logged.
controller.performance.sample.period.ms: long 100.. = 60000 (internal)
    How often the controller logs how quick its events were.
metadata.log.dir: string (engine)
    The folder of the metadata log, if it is not the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots: long 1.. = 20971520
    So many bytes of new metadata make a snapshot due.
metadata.log.max.snapshot.interval.ms: long 0.. = 3600000
    So much time with new metadata makes a snapshot due.
metadata.log.segment.bytes: int 8388608.. = 1073741824
    How large a segment of the metadata log grows.
metadata.log.segment.ms: long = 604800000
    How old a segment of the metadata log grows before the next one begins.
metadata.max.idle.interval.ms: int 0.. = 500
    How often an idle active controller writes a record that says nothing.
metadata.max.retention.bytes: long = 104857600
    How large metadata log and snapshots together may be before old ones go.
metadata.max.retention.ms: long = 604800000
    How long old metadata and snapshots are kept.
internal.metadata.delete.delay.millis: long = 60000 (internal)
    For tests: how long a deleted metadata file stays on disk.
internal.metadata.log.segment.bytes: int (internal)
    For tests: how large a segment of the metadata log grows.
internal.metadata.max.batch.size.in.bytes: int = 8388608 (internal)
    For tests: the largest batch of the metadata log.
internal.metadata.max.fetch.size.in.bytes: int = 8388608 (honoured, internal)
    For tests: the most that one fetch of metadata returns.
server.max.startup.time.ms: long 0.. = 9223372036854775807 (internal)
    How long a node may take to start before it gives up.
unstable.api.versions.enable: boolean = false (internal)
    Whether versions of requests that may still change are served.
unstable.feature.versions.enable: boolean = false (internal)
    Whether versions of features that may still change can be used.
auto.create.topics.enable: boolean = true (honoured)
    Whether asking for a topic that does not exist creates it.
num.partitions: int 1.. = 1 (honoured)
    How many partitions a topic gets if nobody says.
default.replication.factor: int = 1 (honoured)
    How many replicas a partition gets if nobody says.
delete.topic.enable: boolean = true (honoured)
    Whether topics can be deleted.
create.topic.policy.class.name: class
    A class that may refuse the creation of a topic.
alter.config.policy.class.name: class
    A class that may refuse a change of configuration.
auto.leader.rebalance.enable: boolean = true
    Whether leadership returns to the preferred replicas by itself.
leader.imbalance.check.interval.seconds: long 1.. = 300
    How often the controller looks for partitions whose preferred replica does not lead.
unclean.leader.election.enable: boolean = false (honoured, cluster-wide)
    Whether a replica that may miss acknowledged records can become leader when no other is left.
unclean.leader.election.interval.ms: long 1.. = 300000 (internal)
    How often the controller looks for partitions that only an unclean election would revive.
"""  # noqa: E501
