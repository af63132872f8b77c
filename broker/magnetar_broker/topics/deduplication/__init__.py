"""Deduplication: each message is stored once, however often its producer sends it. rules.py has the theory.

deduplication.py         switches it on and off by the policies of a topic, and recovers what is stored of each name
├── snapshots.py             the form of a snapshot of all names and their last ids
├── snapshot_schedule.py     when a snapshot is stored
└── replay.py                reads the ids of the entries after the snapshot
rules.py                 which entries are duplicates: `Producer` decides by it before it appends an entry
partial_batch.py         removes the duplicates from a batch that has new messages, too
"""
