"""The cursors of a topic's subscriptions: what is acknowledged, and how that is made durable.

Theory of operation
-------------------
A cursor is Pulsar's ManagedCursor. Its state is a mark-delete position, up to which everything is acknowledged, and the
acknowledgements after it ("holes"): bitmaps of entries, and bits for the messages of partially acknowledged batches.
The state of a durable cursor is stored three times:

- **Memory** (`AckState`): all acknowledgements, as soon as they are made.
- **The cursor ledger**: a snapshot of the state, then its changes, as records (cursor_record.py). Changes are added
  about once a second, or at once if a consumer wants a receipt.
- **The cursor's node** in the metadata store: the id of the ledger, the mark-delete position when it was created, the
  ids of former ledgers that are not deleted yet, and the subscription's properties. It is changed with each new ledger.
  When a cursor without holes is closed or idle, its node gets the mark-delete position, and the ledger is dropped.

An acknowledgement takes this way:

    `Subscription.acknowledge` → `check_acknowledgement`       checks what the client named (topics/acknowledgments.py)
    `apply_acknowledgement` → `Cursor`, `DispatchRule`         changes `AckState`; takes effect for dispatch
    `AckReceipts.add` → `call_when_saved`                      a consumer wants a receipt: begins a save
    `DurableCursor._save_to_ledger` → `CursorLedger`           adds the unsaved changes to the ledger
    `DurableCursor._complete_save`                             they are durable: `AckReceipts` sends the receipts

An acknowledgement whose receipt was sent is never lost, for three reasons:

- **The receipt** is sent when the record is stored by an ack quorum, and a ledger is read up to its end.
- **The fence.** A broker that opens a cursor recovers its ledger. So the former owner can't send receipts any more.
- **The owner epoch.** A broker that opens the cursors of a topic first writes its epoch into the node above theirs.
  Each change of a cursor's node is a transaction that checks this node. So a former owner can't point a cursor at a
  new ledger, or create or delete a cursor (cursor_nodes.py).

Acknowledgements only accumulate, so each prefix of a ledger's records is a valid state. If an add fails, the cursor
continues in a new ledger with a snapshot of everything (durable_cursor.py). A seek is a record that voids all earlier
ones.

A broker that opens a topic reads only the nodes of its cursors. Their ledgers are recovered and read while the topic is
already served. A cursor that is damaged, or takes a long time, delays only its own subscription (cursor_opener.py).
Opening creates and deletes nothing: the first save creates the ledger, and housekeeping deletes former ledgers.

The log is trimmed up to the slowest durable mark-delete position, `CursorTable.find_slowest_position`. Cursors in
trimmed ledgers are moved behind them.

Files
-----
- `cursor.py`: what subscriptions call. `cursor_table.py`: the cursors of a topic, and `cursor_context.py` what they
  share. `durable_cursor.py`: when and how changes are saved, and what happens if a ledger fails.
- Rules without I/O: `ack_state.py`, `entry_set.py` (bitmaps), `cursor_record.py` (the format of records),
  `subscription_limits.py` (names and properties).
- Storage: `cursor_ledger.py`, `ledger_pause.py` (the pause after a failed ledger), `cursor_nodes.py` (the nodes, and
  their claim by the owner), `cursor_node_writer.py` (changes of one node), `cursor_deletion.py`.
- Opening: `cursor_opener.py`, `opening_slots.py` (how many at a time).
"""
