"""What every part of Magnetar speaks: entries, frames, message ids, topic names, hashes; and the interfaces all share.

Import from the modules: `entry` and `batch` (the codec), `frame`, `message_id`, `topic_name`, `path_component`,
`hashing`, `bundles`; `clock`, `randomness`, `tasks`, `transport`, `configuration` (the interfaces). Nothing here does
I/O but the implementations of those interfaces.
"""
