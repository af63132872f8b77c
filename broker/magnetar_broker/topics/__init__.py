"""Topics: their producers, their subscriptions, and the delivery of stored messages to consumers.

topics.py                    the topics of this broker by name, and their states
├── topic_load_queue.py          openings wait for slots, by topic_load_slots.py
├── topic_opener.py              opens a topic, or creates it if that is allowed
│   └── topic_storage.py             puts it together from its log, cursors and policies
├── topic_deleter.py             closes a topic and deletes it
│   └── topic_deletion.py            deletes what is stored of it, in steps
├── non_persistent/              topics whose messages are not stored
├── topics_by_hash.py            the topics of a bundle
└── housekeeping.py              rolls over, trims and unloads idle topics
topic.py                     one topic
├── producer.py                  a producer, from its entries to their results
│   ├── producer_sink.py             its client, which gets the results
│   ├── entry_check.py               which entries may be stored
│   ├── producer_names.py            who has a name, and its last sequence id
│   └── publish_budget.py            the memory of entries that are not stored yet
└── subscriptions.py             its subscriptions: consumers join them
    ├── loaded_subscriptions.py      those that have consumers, or are being changed
    ├── subscription_administration.py  created, moved and deleted by name
    ├── subscription_changes.py      seek, reset, deletion: one at a time
    ├── subscription_stats.py
    └── progress_subscription.py     the subscription of a reader of the log
subscription.py              one subscription
├── consumer.py                  a consumer, and the interface to its client
├── acknowledgments.py           from a client's acknowledgement to its receipt
├── client_positions.py          positions that clients name
├── consumer_limits.py           which consumers may join
├── expected_reconnections.py    how long it outlasts its consumers
├── topic_tasks.py               its short tasks
└── dispatch/                    which consumer gets which entries
"""
