"""Clusters in processes on this machine: this package's brokers, or Apache Kafka 4.1."""
