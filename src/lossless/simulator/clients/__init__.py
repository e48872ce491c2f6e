"""Models of the clients that people use: they behave as the Java client and librdkafka do."""
