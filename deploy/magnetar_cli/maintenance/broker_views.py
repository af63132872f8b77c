"""Views of brokers, bundles and owners of topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table

from magnetar.admin import ActiveBroker, Bundle, TopicOwner

__all__ = ["BrokersView", "BundlesView", "OwnersView"]

_NO_OWNER = "nobody"


@dataclass(frozen=True, slots=True)
class BrokersView:
    brokers: Sequence[ActiveBroker]
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("broker", "listeners", "http", "bundles", "topics", "load", "MB/s in", "MB/s out", box=None)
        for one in self.brokers:
            table.add_row(one.broker_id, _format_listeners(one), one.http_address, *_format_load(one))
        return table

    def lines(self) -> list[str]:
        found = []
        for one in self.brokers:
            facts = [_format_listeners(one)]
            if one.load is not None:
                bundles, topics, load, *_ = _format_load(one)
                facts.append(f"bundles {bundles} topics {topics} load {load}")
            found.append(f"{one.broker_id}: {' '.join(filter(None, facts)) or 'nothing else is known over HTTP'}")
        return found or ["no broker serves topics"]

    def json_objects(self) -> list[dict[str, object]]:
        return [dataclasses.asdict(one) for one in self.brokers]


@dataclass(frozen=True, slots=True)
class BundlesView:
    namespace: str
    bundles: Sequence[Bundle]
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("bundle", "broker", "address", box=None)
        for one in self.bundles:
            table.add_row(one.bundle, one.broker_id or _NO_OWNER, one.address)
        return table

    def lines(self) -> list[str]:
        return [f"{one.bundle}: {one.broker_id or _NO_OWNER} {one.address}".rstrip() for one in self.bundles]

    def json_objects(self) -> list[dict[str, object]]:
        return [{"namespace": self.namespace, **dataclasses.asdict(one)} for one in self.bundles]


@dataclass(frozen=True, slots=True)
class OwnersView:
    owners: Sequence[TopicOwner]
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("topic", "broker", "address", "bundle", box=None)
        for one in self.owners:
            table.add_row(one.topic, one.broker_id, one.address, one.bundle)
        return table

    def lines(self) -> list[str]:
        return [f"{one.topic}: {one.broker_id} {one.address} {one.bundle}" for one in self.owners]

    def json_objects(self) -> list[dict[str, object]]:
        return [dataclasses.asdict(one) for one in self.owners]


def _format_listeners(one: ActiveBroker) -> str:
    pulsar_urls = {name: f"pulsar://{address}" for name, address in one.pulsar_listeners.items()}
    names = dict.fromkeys([*one.listeners, *pulsar_urls])
    return ", ".join(
        f"{name} {' '.join(filter(None, (one.listeners.get(name), pulsar_urls.get(name))))}" for name in names
    )


def _format_load(one: ActiveBroker) -> list[str]:
    load = one.load
    if load is None:
        return [""] * 5
    return [
        str(load.bundles),
        str(load.topics),
        f"{load.cpu:.0%}",
        f"{load.bytes_in_per_s / 1e6:.1f}",
        f"{load.bytes_out_per_s / 1e6:.1f}",
    ]
