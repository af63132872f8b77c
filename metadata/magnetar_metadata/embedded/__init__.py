"""The metadata store of a standalone: a folder with RocksDB. Start with `store`."""

from __future__ import annotations

from magnetar_metadata.embedded.store import EmbeddedDatabase, EmbeddedStore, open_embedded

__all__ = ["EmbeddedDatabase", "EmbeddedStore", "open_embedded"]
