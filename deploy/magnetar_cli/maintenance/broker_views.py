"""Views of brokers and bundles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import RenderableType
from rich.table import Table

from magnetar.admin import ActiveBroker, Admin, Bundle, TopicHome

__all__ = ["BrokersView", "BundlesView", "HomesView"]

_NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class BrokersView:
    brokers: Sequence[ActiveBroker]
    over: bool = True

    def table(self) -> RenderableType:
        table = Table("broker", "listeners", "http", "bundles", "topics", "load", "MB/s in", "MB/s out", box=None)
        for one in self.brokers:
            table.add_row(one.broker_id, _listeners(one), one.http_address, *_numbers(one))
        return table

    def lines(self) -> list[str]:
        found = []
        for one in self.brokers:
            bundles, topics, load, *_ = _numbers(one)
            found.append(f"{one.broker_id}: {_listeners(one)} bundles {bundles} topics {topics} load {load}")
        return found or ["no broker serves topics"]

    def json_objects(self) -> list[dict[str, object]]:
        return [dataclasses.asdict(one) for one in self.brokers]


@dataclass(frozen=True, slots=True)
class BundlesView:
    namespace: str
    bundles: Sequence[Bundle]
    over: bool = True

    def table(self) -> RenderableType:
        table = Table("bundle", "broker", "address", box=None)
        for one in self.bundles:
            table.add_row(one.bundle, one.broker_id or _NOBODY, one.address)
        return table

    def lines(self) -> list[str]:
        return [f"{one.bundle}: {one.broker_id or _NOBODY} {one.address}".rstrip() for one in self.bundles]

    def json_objects(self) -> list[dict[str, object]]:
        return [{"namespace": self.namespace, **dataclasses.asdict(one)} for one in self.bundles]


@dataclass(frozen=True, slots=True)
class HomesView:
    homes: Sequence[TopicHome]
    over: bool = True

    @classmethod
    def of(cls, admin: Admin, topic: str, listener_name: str) -> Self:
        return cls(admin.topics.homes(topic, listener_name))

    def table(self) -> RenderableType:
        table = Table("topic", "broker", "address", "bundle", box=None)
        for one in self.homes:
            table.add_row(one.topic, one.broker_id, one.address, one.bundle)
        return table

    def lines(self) -> list[str]:
        return [f"{one.topic}: {one.broker_id} {one.address} {one.bundle}" for one in self.homes]

    def json_objects(self) -> list[dict[str, object]]:
        return [dataclasses.asdict(one) for one in self.homes]


def _listeners(one: ActiveBroker) -> str:
    of_pulsar = {name: f"pulsar://{address}" for name, address in one.pulsar_listeners.items()}
    names = dict.fromkeys([*one.listeners, *of_pulsar])
    return ", ".join(
        f"{name} {' '.join(filter(None, (one.listeners.get(name), of_pulsar.get(name))))}" for name in names
    )


def _numbers(one: ActiveBroker) -> list[str]:
    load = one.load
    return [
        str(load.bundles),
        str(load.topics),
        f"{load.cpu:.0%}",
        f"{load.bytes_in_per_s / 1e6:.1f}",
        f"{load.bytes_out_per_s / 1e6:.1f}",
    ]
