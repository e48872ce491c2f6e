"""Kafka's settings by their names, with Kafka's defaults: tables, and what is read from them.

kinds            one setting: its values, as text and typed; what Kafka says of a wrong one
table            how the tables are written
topics, brokers, groups    the tables (broker_tables/), defaults of topics, which value counts
deviations       what an embedded cluster has otherwise than Kafka, and why
broker_settings  what a broker acts on, typed
policies         what a topic's settings mean for its partitions
machines         configurations of the machines in core/
describe         what DescribeConfigs answers
document         docs/settings.md
"""
