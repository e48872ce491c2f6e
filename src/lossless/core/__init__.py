"""The replication protocol as state machines: no sockets, no files, no clock, no chance.

Two hosts run them: a broker on a real disk and network, and the simulator.
"""
