"""`lossless demo`: delivery under faults on real components, judged record by record.

stage.py          what both variants stand on: a folder, three brokers, producers, a driver
careful.py        idempotent producers and a Lossless pipeline; the audit is the judge
careless.py       acks=1 and a plain foreachBatch append; the acknowledgements are the judge
careless_job.py   that plain job, a program of its own
orders.py         the records
producing.py      producers that write down what was acknowledged
driver.py         a Spark driver in a process group of its own
folder.py         where everything lies, and the contract
comparison.py     acknowledged orders against the table
result.py         what came out, and the line that says it
telling.py        how progress reaches whoever watches
"""
