"""The settings of Kafka 4.1's brokers, by subject."""
