"""Apache Kafka 4.1, KRaft: real brokers in processes on this machine."""
