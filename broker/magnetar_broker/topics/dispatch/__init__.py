"""Who gets what of a subscription's entries: rules, without I/O.

dispatch_rule.py          what all rules have in common, and what is asked of one
├── exclusive_and_failover.py     Exclusive and Failover: all to one consumer, in order
└── shared.py       Shared: entries in turn to all who take some
chunk_owners.py      of Shared: which consumer has had the first chunks of a message, and gets the others
active_choice.py     which consumer is the one of Failover
consumer_state.py    what is known of one consumer: permits, epoch, what it holds
entry_counts.py     a number for each of many entries: what is held, and how often it was delivered
position_set.py      what is to be delivered again
redelivery_counts.py   how often entries were delivered that all go to one consumer
"""
