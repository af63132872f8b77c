"""An external ZooKeeper, in which the cluster has its own chroot. It deletes nothing else there."""

from __future__ import annotations

from typing import Final

from magnetar_cli.cluster.errors import ClusterError
from magnetar_metadata.errors import InvalidLocation
from magnetar_metadata.location import ZooKeeperLocation, parse_location

__all__ = ["check_hosts", "delete_chroot"]

# A user waits.
CONNECT_S: Final = 5.0


def check_hosts(hosts: str) -> None:
    """Raise `ClusterError` if it is not a list "host:port,host:port"."""
    try:
        parsed = parse_location(f"zookeeper://{hosts}")
    except InvalidLocation:
        parsed = None
    if not isinstance(parsed, ZooKeeperLocation) or parsed.hosts != hosts:
        raise ClusterError(f"--zookeeper {hosts!r:.200} is not a list of addresses: use host:port,host:port…")


def delete_chroot(hosts: str, chroot: str) -> None:
    """Delete the chroot with all nodes. Raise `ClusterError`."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=hosts)
    try:
        client.start(timeout=CONNECT_S)
        client.delete(chroot, recursive=True)
    except NoNodeError:
        pass  # the cluster never started
    except (KazooException, KazooTimeoutError) as error:
        raise ClusterError(
            f"{chroot} in the ZooKeeper at {hosts} could not be deleted ({str(error) or type(error).__name__}), so "
            "nothing was deleted: --wipe --force deletes the data on this machine anyway"
        ) from None
    finally:
        client.stop()
        client.close()
