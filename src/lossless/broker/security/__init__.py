"""Who connects, how they prove it, and what they may do.

listeners.py   what a listener demands, read from Kafka's settings; tls.py: certificates
gate.py        between a listener and what it serves: nobody passes who is not known
nodes.py       the controllers' listener: for nodes that have the cluster's secret
sasl.py        the server's end of PLAIN and SCRAM; login.py: a node that logs in with another
authorizer.py  who may do what; rules.py, api_rules.py: what each API asks for
"""
