"""Non-persistent topics: a message goes to the consumers that take it now, and is stored nowhere.

They are topics like others, with other parts below: producers, subscriptions, dispatch rules and both listeners are the
same. Where a persistent topic has a managed ledger and durable cursors, these have

topic_log.py        the entries of one turn of the event loop
cursors.py          subscriptions without progress, in memory
subscriptions.py    what no consumer takes is skipped, and counted as dropped
storage.py          opens and deletes them
topic_node.py       the record that the topic exists
"""
