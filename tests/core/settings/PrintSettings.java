// Prints what Apache Kafka 4.1 itself says about its settings, as JSON lines: the file kafka-4.1.jsonl.
// Run once by hand for a new version of Kafka; JARS is the folder that `lossless` keeps Kafka's jars in:
//     java -cp "JARS/*" PrintSettings.java > kafka-4.1.jsonl 2> /dev/null

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.ConfigHelper;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResult;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

public class PrintSettings {
    static final Map<String, String> NODE = Map.of(
        "process.roles", "broker", "node.id", "1",
        "controller.listener.names", "CONTROLLER", "controller.quorum.voters", "9@localhost:9093");

    // What the first case says of a resource; later ones print what is different.
    static final Map<String, Map<String, Object>> FIRST = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        Object dynamic = Class.forName("kafka.server.DynamicBrokerConfig$").getField("MODULE$").get(null);
        Method modes = dynamic.getClass().getMethod("dynamicConfigUpdateModes");
        settings("broker", KafkaConfig.configDef(), (Map<?, ?>) modes.invoke(dynamic));
        settings("topic", LogConfig.configDefCopy(), Map.of());
        settings("group", GroupConfig.configDef(), Map.of());

        Map<String, String> none = Map.of();
        described(none, none, none, none);
        described(
            Map.of("retention.ms", "5", "cleanup.policy", "compact, delete",
                   "min.cleanable.dirty.ratio", "1e-2", "flush.messages", " 1 ", "preallocate", "TRUE"),
            Map.of("log.retention.hours", "100", "log.segment.bytes", "0002097152",
                   "min.insync.replicas", "2", "log.cleaner.threads", "3", "ssl.key.password", "secret",
                   "not.a.setting", "x", "listener.name.plain.ssl.keystore.password", "secret",
                   "broker.rack", "a", "fetch.max.bytes", " 2048 ", "log.roll.hours", "1"),
            none, none);
        described(
            Map.of("min.insync.replicas", "1", "message.timestamp.type", "LogAppendTime"),
            Map.of("log.retention.ms", "7000", "log.retention.minutes", "6", "log.roll.ms", "8000",
                   "log.flush.scheduler.interval.ms", "90", "log.roll.jitter.hours", "1",
                   "min.insync.replicas", "2", "log.cleaner.threads", "3"),
            Map.of("min.insync.replicas", "3", "log.retention.ms", "9000", "log.cleaner.threads", "4"),
            Map.of("log.cleaner.threads", "5", "log.retention.ms", "11000"));
        described(none, Map.of("log.retention.hours", "-1", "log.cleaner.io.max.bytes.per.second", "12345678"),
            Map.of("log.flush.interval.ms", "77"), none);
        described(none, Map.of("log.retention.minutes", "3", "log.flush.interval.messages", "1"), none, none);

        for (Map<String, String> overrides : List.of(
                none,
                Map.of("retention.ms", "-1"),
                Map.of("retention.ms", "-2"),
                Map.of("retention.ms", "1.5"),
                Map.of("retention.ms", "9223372036854775808"),
                Map.of("segment.bytes", "1048575"),
                Map.of("segment.bytes", "2147483648"),
                Map.of("retentionms", "1"),
                Map.of("preallocate", "yes"),
                Map.of("cleanup.policy", ""),
                Map.of("cleanup.policy", "compact,delete"),
                Map.of("cleanup.policy", "compact,"),
                Map.of("cleanup.policy", "Compact"),
                Map.of("compression.type", "lzma"),
                Map.of("compression.gzip.level", "0"),
                Map.of("compression.gzip.level", "-1"),
                Map.of("compression.lz4.level", "18"),
                Map.of("compression.zstd.level", "23"),
                Map.of("min.cleanable.dirty.ratio", "1.1"),
                Map.of("min.cleanable.dirty.ratio", "half"),
                Map.of("min.cleanable.dirty.ratio", "NaN"),
                Map.of("min.insync.replicas", "0"),
                Map.of("min.insync.replicas", "+2"),
                Map.of("min.insync.replicas", ""),
                Map.of("message.timestamp.type", "createtime"),
                Map.of("min.compaction.lag.ms", "10", "max.compaction.lag.ms", "9"),
                Map.of("max.compaction.lag.ms", "0"),
                Map.of("leader.replication.throttled.replicas", "*"),
                Map.of("leader.replication.throttled.replicas", "0:1,1:2"),
                Map.of("leader.replication.throttled.replicas", "0-1"),
                Map.of("remote.storage.enable", "true"),
                Map.of("flush.messages", "0"),
                Map.of("internal.segment.bytes", "7"),
                Map.of("index.interval.bytes", "-1"))) {
            String refusal = null;
            try {
                LogConfig.validate(Map.of(), properties(overrides), node(none).extractLogConfigMap(), false);
            } catch (RuntimeException refused) {
                refusal = refused.getMessage();
            }
            print("is", "topic refusal", "overrides", overrides, "refusal", refusal);
        }
    }

    static void settings(String scope, ConfigDef definition, Map<?, ?> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            boolean isRequired = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            print("is", "setting", "scope", scope, "name", key.name, "kind", key.type.toString().toLowerCase(),
                "default", isRequired ? null : ConfigDef.convertToString(key.defaultValue, key.type),
                "required", isRequired, "valid", key.validator == null ? "" : key.validator.toString(),
                "internal", key.internalConfig, "mode", modes.containsKey(key.name) ? modes.get(key.name) : "read-only");
        }
    }

    static void described(Map<String, String> overrides, Map<String, String> broker,
                          Map<String, String> clusterDefaults, Map<String, String> brokerOverrides) {
        KafkaConfig config = node(broker);
        config.dynamicConfig().initialize(Option.empty());
        config.dynamicConfig().updateDefaultConfig(properties(clusterDefaults), false);
        config.dynamicConfig().updateBrokerConfig(1, properties(brokerOverrides), false);
        Map<String, String> ofGroup = overrides.isEmpty() ? Map.of() : Map.of("consumer.session.timeout.ms", "50000");
        ConfigRepository stored = resource -> properties(
            resource.type() == ConfigResource.Type.GROUP ? ofGroup : overrides);
        MetadataCache everyTopic = (MetadataCache) Proxy.newProxyInstance(
            PrintSettings.class.getClassLoader(), new Class<?>[] {MetadataCache.class},
            (proxy, method, values) -> method.getName().equals("contains"));
        ConfigHelper helper = new ConfigHelper(everyTopic, config, stored);
        for (byte type : new byte[] {2, 4, 32}) {
            for (String name : type == 4 ? List.of("1", "") : List.of("some")) {
                List<DescribeConfigsResource> asked = List.of(new DescribeConfigsResource()
                    .setResourceType(type).setResourceName(name).setConfigurationKeys(null));
                for (DescribeConfigsResult result : CollectionConverters.asJava(helper.describeConfigs(
                        CollectionConverters.asScala(asked).toList(), true, false))) {
                    if (result.errorCode() != 0) throw new IllegalStateException(result.toString());
                    Map<String, Object> entries = new TreeMap<>();
                    for (DescribeConfigsResourceResult entry : result.configs()) {
                        List<Object> synonyms = entry.synonyms().stream().map(synonym -> (Object) row(
                            synonym.name(), synonym.value(), synonym.source())).collect(Collectors.toList());
                        entries.put(entry.name(), row(entry.value(), entry.configSource(), entry.isSensitive(),
                            entry.readOnly(), entry.configType(), synonyms));
                    }
                    String resource = type == 2 ? "topic" : type == 32 ? "group" : name.isEmpty() ? "cluster" : "broker";
                    Map<String, Object> first = FIRST.putIfAbsent(resource, entries);
                    if (first != null) entries.entrySet().removeAll(first.entrySet());
                    print("is", "described", "resource", resource,
                        "overrides", type == 32 ? ofGroup : overrides, "broker_properties", with(NODE, broker),
                        "cluster_defaults", clusterDefaults, "broker_overrides", brokerOverrides,
                        "entries", entries);
                }
            }
        }
    }

    static KafkaConfig node(Map<String, String> broker) {
        return new KafkaConfig(properties(with(NODE, broker)), false);
    }

    static Map<String, String> with(Map<String, String> some, Map<String, String> more) {
        Map<String, String> all = new TreeMap<>(some);
        all.putAll(more);
        return all;
    }

    static Properties properties(Map<String, String> texts) {
        Properties properties = new Properties();
        properties.putAll(texts);
        return properties;
    }

    static List<Object> row(Object... values) {
        List<Object> row = new ArrayList<>();
        for (Object value : values) row.add(value);
        return row;
    }

    static void print(Object... pairs) {
        List<String> fields = new ArrayList<>();
        for (int at = 0; at < pairs.length; at += 2) fields.add(json(pairs[at]) + ":" + json(pairs[at + 1]));
        System.out.println("{" + String.join(",", fields) + "}");
    }

    static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        if (value instanceof List<?> list)
            return list.stream().map(PrintSettings::json).collect(Collectors.joining(",", "[", "]"));
        if (value instanceof Map<?, ?> map)
            return new TreeMap<Object, Object>(map).entrySet().stream()
                .map(entry -> json(entry.getKey()) + ":" + json(entry.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
}
