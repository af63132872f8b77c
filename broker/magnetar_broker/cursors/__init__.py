"""The cursors of a topic: what each durable subscription has acknowledged."""
