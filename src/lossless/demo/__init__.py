"""`lossless demo`: delivery under faults on real components, checked record by record.

environment.py    a folder, three brokers, producers and drivers: shared by both variants
careful.py        idempotent producers and a Lossless pipeline, checked by the audit
careless.py       acks=1 and a plain foreachBatch append, checked against the acknowledgements
careless_job.py   the Spark job of the careless variant, a separate program
second_driver.py  the Spark driver that finishes the careful variant and audits it
orders.py         the records
producing.py      producers that log every acknowledgement
driver.py         a Spark driver and its processes
folder.py         the files of a demo, and its contract
comparison.py     compares acknowledged orders with the table
result.py         the result and its last line
progress.py       the interface through which a demo reports its progress
"""
