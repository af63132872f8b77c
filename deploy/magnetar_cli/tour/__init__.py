"""`magnetar tour`, which `make run` runs: a broker, subscriptions and Spark in half a minute.

command.py       the command line
steps.py         the steps in order
narrator.py      the output, on a terminal and elsewhere
child.py         a process that ends with this one
server.py        the standalone
readings.py      the published messages: measurements with known counts
messaging.py     publishing, and consuming on two types of subscription
spark_step.py    Spark's process, and its output
spark_query.py   the query that runs in that process

All results are measured while the tour runs, and compared with the expected ones. If one is wrong, the tour ends with
exit status 1.
"""
