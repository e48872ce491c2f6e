"""The log: what a partition keeps, as bytes that Kafka's own tools can read.

Pure but for `files.py`: no clock, no randomness, no event loop. Time is an argument.
"""
