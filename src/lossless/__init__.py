"""Reliable data delivery for Kafka and Spark, proven rather than hoped for."""
