"""Clusters: the brokers' own, which always exists, and others, of which only data are stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes
from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import ClusterData, ClusterNode
from magnetar_wire.path_component import decode_path_component

__all__ = ["Clusters"]

_NAME: Final = re.compile(r"[A-Za-z0-9_=:.-]{1,256}")
_MAX_TEXT: Final = 10_000
_MAX_PEERS: Final = 1000
_PROXY_PROTOCOLS: Final = ("SNI",)
# The schemes of the URLs.
_SCHEMES: Final = {
    "service_url": ("http",),
    "service_url_tls": ("https",),
    "broker_service_url": ("pulsar",),
    "broker_service_url_tls": ("pulsar+ssl",),
    "proxy_service_url": ("pulsar", "pulsar+ssl"),
}


class Clusters:
    def __init__(self, nodes: CatalogNodes, own: str) -> None:
        self._nodes = nodes
        self.own = own

    async def list_names(self) -> list[str]:
        await self._nodes.sync()
        names = {self.own}
        for component in await self._nodes.list_children(paths.CLUSTERS):
            try:
                names.add(decode_path_component(component))
            except ValueError:
                continue  # somebody else created the node
        return sorted(names)

    async def find_data(self, name: str) -> ClusterData | None:
        """Return what was stored. None: nothing was, of the brokers' own cluster. Raises NOT_FOUND."""
        found = await self._nodes.read(ClusterNode, paths.cluster(name), fresh=True) if _is_name(name) else None
        if found is None and name != self.own:
            raise self._not_found(name)
        return None if found is None else found.node.data

    async def create(self, name: str, data: ClusterData) -> None:
        if not _is_name(name):
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"the cluster name {name!r:.100} is not valid: use 1 to 256 letters, digits and -_=:. characters",
            )
        _check(data)

        def created(node: ClusterNode | None) -> ClusterNode:
            if node is not None or name == self.own:
                raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a cluster {name} already")
            return ClusterNode(data=data)

        await self._nodes.change(ClusterNode, paths.cluster(name), created)

    async def update(self, name: str, data: ClusterData) -> None:
        if not _is_name(name):
            raise self._not_found(name)
        _check(data)

        def updated(node: ClusterNode | None) -> ClusterNode:
            if node is None and name != self.own:
                raise self._not_found(name)
            return ClusterNode(data=data)

        await self._nodes.change(ClusterNode, paths.cluster(name), updated)

    async def delete(self, name: str) -> None:
        """Delete a cluster that is not used any more."""
        if name == self.own:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is the brokers' own cluster, and can't be deleted")
        if not _is_name(name):
            raise self._not_found(name)

        def deleted(node: ClusterNode | None) -> None:
            if node is None:
                raise self._not_found(name)

        await self._nodes.change(ClusterNode, paths.cluster(name), deleted)

    def _not_found(self, name: str) -> BrokerError:
        return BrokerError(ErrorCode.NOT_FOUND, f"there is no cluster {name!r:.100}: this one is {self.own!r}")

    async def check_known(self, names: Iterable[str], what: str) -> None:
        """Raise `BrokerError` unless all clusters exist. `what` names the setting that names them."""
        others = sorted(set(names) - {self.own})
        if not others:
            return
        known = await self.list_names()
        unknown = [name for name in others if name not in known]
        if unknown:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"{what}: there is no cluster {unknown[0]!r:.100}: there are {', '.join(known[:10])}",
            )


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _check(data: ClusterData) -> None:
    for field, value in data.ListFields():
        texts = value if field.is_repeated else [value]
        if any(isinstance(text, str) and len(text) > _MAX_TEXT for text in texts) or len(texts) > _MAX_PEERS:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"{field.name}: at most {_MAX_TEXT:,} characters, and {_MAX_PEERS:,} names of clusters",
            )
    for name, schemes in _SCHEMES.items():
        url = getattr(data, name)
        if url and not _is_url(url, schemes):
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"{name}: {url!r:.100} is no URL of a cluster: use {' or '.join(schemes)}://host:port",
            )
    if data.proxy_protocol and data.proxy_protocol not in _PROXY_PROTOCOLS:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"proxy_protocol: {data.proxy_protocol!r:.100} is none of SNI")


def _is_url(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in schemes and bool(parts.netloc.strip(",:"))
