"""`magnetar tour`, which is what `make run` runs: broker, subscriptions, Spark, in half a minute.

command.py       the command line
story.py         the steps, in order, and what ends them
narrator.py      how they are told, to a terminal and to a file
child.py         a process that ends with this one
server.py        the standalone that all of it happens on
readings.py      what is published: measurements of which everybody knows what must come out
messaging.py     publishing, and consuming on two types of subscription
spark_step.py    Spark's process, followed from outside
spark_query.py   the query itself, in that process

Everything that is shown is counted here and now, and held against what must come out; what does not fit ends the tour
with the exit status 1.
"""
