"""Topics: their producers, their subscriptions, and the delivery of stored messages to consumers.

topics.py                    the topics of this broker by name, and their states
├── interface.py                 what it needs from elsewhere: where topics are stored, and whether they may exist
├── topic_load_queue.py          openings wait for slots, by topic_load_slots.py
├── topic_load_slots.py          which topics may be opened now
├── topic_opener.py              opens a topic, or creates it if that is allowed
│   └── topic_storage.py             puts it together from its log, cursors and policies
│       └── topic_services.py            what all topics of a session share
├── topic_deleter.py             closes a topic and deletes it
│   └── topic_deletion.py            deletes what is stored of it, in steps
├── non_persistent/              topics whose messages are not stored
└── topics_by_hash.py            the topics of a bundle
topic.py                     one topic
├── topic_schemas.py             the schemas of its producers and consumers
├── live_settings.py             its settings, by the policies that apply to it now
│   └── policy_refresh.py            reads the policies of all loaded topics at intervals
├── producers.py                 its producers: the stages of opening one
│   ├── producer_access.py           admits them by their access modes
│   ├── producer_access_rules.py     which of them may publish at the same time
│   ├── producer_names.py            who has a name, and its last sequence id
│   ├── deduplication/               which entries are stored already
│   └── backlog_quotas.py            holds producers back, or evicts messages, by backlog_quota_rules.py
│       └── backlog_quota_rules.py       when a backlog reaches its quota, and how much is evicted
├── producer.py                  a producer, from its entries to their results
│   ├── producer_sink.py             its client, which gets the results
│   ├── entry_check.py               which entries may be stored
│   └── publish_throttle.py          when it may publish
│       ├── publish_budget.py            the memory of entries that are not stored yet
│       └── rate_limit.py                a rate of publishes or dispatches, in turns, by token_bucket.py
│           └── token_bucket.py              the rules of rates
└── subscriptions.py             its subscriptions: consumers join them
    ├── subscribe_counts.py          the rate of subscribe requests
    ├── subscribe_refusals.py        the last one that was refused
    ├── loaded_subscriptions.py      those that have consumers, or are being changed
    ├── subscription_administration.py  created, moved and deleted by name
    ├── subscription_changes.py      seek, reset, deletion: one at a time
    ├── subscription_stats.py        their statistics
    │   └── subscription_reasons.py      why they deliver nothing
    └── progress_subscription.py     the subscription of a reader of the log
subscription.py              one subscription
├── consumer.py                  a consumer, and the interface to its client
├── acknowledgments.py           from a client's acknowledgement to its receipt
├── client_positions.py          positions that clients name
├── consumer_limits.py           which consumers may subscribe
├── expected_reconnections.py    how long it outlasts its consumers
├── topic_tasks.py               its short tasks
└── dispatch/                    which consumer gets which entries
housekeeping.py              looks after all loaded topics, at intervals
├── message_expiry.py            expires old messages (TTL)
├── subscription_expiry.py       deletes subscriptions that are not used
├── expiry_check.py              the schedule of both
├── inactive_topics.py           which topics are deleted because nobody uses them
└── topic_visits.py              opens topics that are not loaded, so that retention and expiry act on them, too
"""
