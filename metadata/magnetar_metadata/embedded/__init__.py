"""The metadata store of a standalone process: a folder with RocksDB. `store` is where to begin."""

from __future__ import annotations

from magnetar_metadata.embedded.store import EmbeddedDatabase, EmbeddedStore, open_embedded

__all__ = ["EmbeddedDatabase", "EmbeddedStore", "open_embedded"]
