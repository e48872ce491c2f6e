"""What happened to the records, judged: histories, and one file for each property.

    history.py        what clients and logs saw, as values
    anomaly.py        the names of what can be wrong, and what is said of it
    verdict.py        all properties in their order; from anomalies to a verdict

    sets.py           acknowledged within stored within attempted; stored and never attempted
    fate.py           what became of one record: what lost and torn both ask
    lost.py  unseen.py  duplicate.py  inconsistent_offset.py  reordered.py  precommitted_read.py
    aborted_read.py  torn_transaction.py  stuck.py  unprocessed.py  repeated.py

A leaf: imports nothing of the package, no clock, no files. Every property is a function from a
history to anomalies, and one history always gives the same ones in the same order.
"""
