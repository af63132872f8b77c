"""The metadata store of a cluster: ZooKeeper, through kazoo. Start with `store`."""

from __future__ import annotations

from magnetar_metadata.zookeeper.store import ZooKeeperStore, open_zookeeper

__all__ = ["ZooKeeperStore", "open_zookeeper"]
