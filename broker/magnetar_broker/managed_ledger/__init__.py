"""A topic's log: a list of ledgers.

Theory of operation
-------------------
A ledger ends; a topic does not. So a topic's log is a list of ledgers, stored in a node of the metadata store, and
entries are added to the last one. Only the topic's owner may add. Three mechanisms ensure that together:

- **The owner epoch** in the node. A broker that opens the topic writes a random token there first. From then on no
  other broker changes the list (topic_node.py), so the list has no ledger that the owner doesn't know.
- **The fence** of the last ledger. Opening the topic recovers it, unless it is known to be closed: its former writer
  can add nothing more, and all entries that it reported as persisted are in the closed ledger (log_recovery.py).
- **The close** of each ledger by its own writer. Entries whose adds failed are added to another ledger only after this
  close has won (appender.py).

A broker that is refused by one of them has lost the topic. It unloads it at once: the outcome of pending appends is
unknown, and it trims nothing more. Ownership in the metadata store (`ownership/`) only decides which broker tries.

**Entries.** An entry gets the broker's time and the index of its last message when it is appended (append_queue.py). It
keeps them if it is added again to another ledger, and both never fall. The list has the last index and the times of
each closed ledger. For the last ledger they are in the ledger's metadata if its writer closed it, and otherwise are
read from its first and last entry. An entry that is lost on all bookies affects no other (ledger_ends.py,
lost_entries.py). The first append creates a ledger. If the broker dies before it adds an entry, the empty ledger is
removed with the next change of the list.

**The list** is in one node while it is short. Then its older part moves, in the transaction that changes the list, into
pages of a thousand ledgers each. A page never changes, and is deleted when all of its ledgers are trimmed
(ledger_list.py).

**Deletion.** Storage is freed by whole ledgers, from the front. ledger_lifetime_rules.py decides which ledgers may be
deleted, and what a topic without a durable subscription retains. trimmer.py deletes them, in steps that are durable one
after the other. A topic is deleted in steps, too, and any broker that finds it half deleted continues
(topics/topic_deletion.py). Ledgers that a Spark reader has leased are spared (lease_rules.py, log_leases.py), also if
the topic is deleted (orphaned_ledgers.py). A topic is created with the leases that readers have on its namespace
(namespace_leases.py).

**Reading.** The newest entries of all topics are cached (entry_cache.py), and reads look there first (log_reader.py).
Older entries are read from their ledgers (uncached_entry_reader.py), and prefetched for a consumer that works through a
backlog (read_ahead.py). Spark reads the bookies itself, by a plan (read_plan.py).

What opening a topic costs
--------------------------
A broker that takes over from a dead one opens hundreds of topics at once, so requests count. For a topic: a read of its
namespace after a sync, reads of its two nodes, two transactions that write the owner epochs, and the list of its
cursors. For the topic's last ledger, and for that of each cursor: a read of its node, two transactions (the recovery
begins, and closes it), a call to each bookie of its last fragment, which fences and reads the end, and reads of its
entries: the first and the last of a topic's, all of a cursor's. For a cursor also a read of its node. After a graceful
close the ledgers are closed, or a cursor has none, and only the reads remain.
"""
