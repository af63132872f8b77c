"""A ZooKeeper that is not the cluster's: the cluster has a chroot of its own in it, and deletes nothing else."""

from __future__ import annotations

import re
from typing import Final

from magnetar_cli.cluster.errors import ClusterError

__all__ = ["check_hosts", "wipe_chroot"]

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_CONNECT_S: Final = 15.0


def check_hosts(hosts: str) -> None:
    """Raises `ClusterError` for what is no "host:port,host:port"."""
    for host in hosts.split(","):
        found = _HOST.fullmatch(host.strip())
        if found is None or not 0 < int(found[2]) < 65_536:
            raise ClusterError(f"--zookeeper takes host:port,host:port…, and {host.strip()!r:.80} is not that")


def wipe_chroot(hosts: str, chroot: str) -> None:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=hosts)
    try:
        client.start(timeout=_CONNECT_S)
        client.delete(chroot, recursive=True)
    except NoNodeError:
        pass  # nothing was ever written
    except (KazooException, KazooTimeoutError) as error:
        raise ClusterError(f"{chroot} in the ZooKeeper at {hosts} could not be deleted: {error!r}") from None
    finally:
        client.stop()
        client.close()
