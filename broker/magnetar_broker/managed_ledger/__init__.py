"""A topic's log, as a list of ledgers. Its cursors are in `magnetar_broker.cursors`.

Theory of operation
-------------------
A ledger ends; a topic does not. So a topic's log is a list of ledgers, in a node of the metadata store, and entries are
added to the last one. Three things decide together who may add:

- **The life** in the node. Whoever opens the topic puts a number of its own there first. From then on nobody else
  changes the list (topic_node.py), so the list has no ledger that its owner does not know of.
- **The fence** of the last ledger. Opening recovers it, unless it is known to be closed: who wrote it before can add
  nothing more, and what that one was told is stored is below its end (log_recovery.py).
- **The close** of each ledger by its own writer. Failed adds are appended again only after that has been the one that
  counts (appender.py).

Who meets a refusal of any of them has lost the topic, at once and for good: its pending appends are unknown, and it
trims no more. Who owns a topic by a hint of the metadata store only decides who tries.

An entry gets the broker's time and the index of its last message when it is appended (append_queue.py), keeps them from
ledger to ledger, and both never fall. What is known of a closed ledger is in the list; the last one's own metadata
say it where its writer closed it, and its first and last entry after a recovery. An entry that is lost on all bookies
costs itself alone (managed_ledger/ledger_ends.py, lost_entries.py). No ledger is made before the first append needs it,
and the empty one that a death in between leaves is taken off with the next change of the list.

The list is one node until it is long. Then its older part moves, in the transaction that changes the list, into pages
of some thousand ledgers, which never change and go when all in them was trimmed (managed_ledger/ledger_list.py).

Storage is freed by whole ledgers, from the front, in steps of which each is durable before the next (trimmer.py). The
rule which ledgers may be deleted, and what a topic without a durable subscription retains, is in
managed_ledger/retention_rules.py; log_retention.py applies it. A topic is deleted in steps, too, which whoever meets it
half deleted goes on with (deletion.py). Neither deletes what a reader past the broker has leased: that is told in
managed_ledger/lease_rules.py, log_leases.py and, of topics that are gone, orphaned_ledgers.py. A topic is made with the
leases that readers have on its namespace (managed_ledger/namespace_lease_rules.py).

What opening a topic costs
--------------------------
A broker that takes over from one that has died opens hundreds of topics at once, so requests count. For a topic: a
fresh read of its namespace, reads of its two nodes, two transactions that write the lives, and the list of its cursors.
For the topic's last ledger, and for that of each cursor: a read of its node, two transactions (the recovery begins, and
closes it), a call to each bookie of its last fragment, which fences and reads the end, and reads of its entries: the
first and the last of a topic's, all of a cursor's. For a cursor also a read of its node. After a graceful close ledgers
are closed, or a cursor has none, and only the reads remain.
"""
