"""A stream's driver: which offsets a micro-batch has, and what happens when it is committed.

topic_stream.py            plans and commits micro-batches, in the order of Spark's calls
offsets.py                 a query's offsets as JSON in Spark's checkpoint
admission_control.py       how much a micro-batch reads of each partition, and whether it waits for more messages
lag_report.py              messages behind, for the query's progress
progress_subscription.py   the subscription that retains unread messages
"""
