"""Dispatch: which consumer of a subscription gets which entries, and when.

dispatcher.py            reads what the rule of the subscription needs, and delivers what it assigns
subscription_types.py    the table of subscription types and their rules
dispatch_rule.py         what a rule is
├── exclusive_and_failover.py    one active consumer gets all entries in order
└── individual_delivery.py       entries are acknowledged and redelivered one by one:
    ├── shared.py                    consumers get entries in turn
    └── key_shared.py                a key goes to one consumer at a time
delivery_capacity.py     the bounds on what one consumer gets: permits, unacknowledged messages, the outbox
key_shared_reasons.py    Key_Shared: why entries wait
shortages.py             what holds several consumers back, as one reason
base_consumer.py         a consumer as the rules see it
chunk_owners.py          Shared: which consumer gets the later chunks of a message
entry_counts.py          a number for each of many entries: unacknowledged messages, or deliveries
redelivery_counts.py     Exclusive, Failover: how often entries were delivered
key_shared_policy.py     how a consumer wants to share a Key_Shared subscription
key_order.py             Key_Shared: which consumer gets an entry, so that the entries of a key stay in order
key_selectors.py         Key_Shared: which consumer each slot, and so each key, is assigned to
key_shared_stats.py      Key_Shared: statistics of keys
held_keys.py             Key_Shared: which consumer has unacknowledged entries of a key
waiting_keys.py          Key_Shared: entries that were read and not delivered
position_set.py          a set of entries, in order: what is redelivered
dispatch_rates.py        the rates of dispatches: a dispatcher waits for its turn while one is reached

All modules but dispatcher.py and dispatch_rates.py are rules without I/O. One of them calls back: `OutboxCapacity`
registers the consumers that found no capacity, and calls them when there is some. A new subscription type is a file
with its rule, and a line in the table.
"""
