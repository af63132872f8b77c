"""Admin calls on the brokers' configuration."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_bookie.paths import LEDGERS
from magnetar_broker.admin.dynamic_configuration import DynamicConfiguration
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.dynamic import NotDynamic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["ConfigurationCalls"]


class ConfigurationCalls:
    def __init__(self, dynamic: DynamicConfiguration, describe_settings: Callable[[], dict[str, str]]) -> None:
        """`describe_settings` returns the settings of this broker's process as texts, by their public names."""
        self._dynamic = dynamic
        self._describe_settings = describe_settings

    async def runtime_configuration(self, request: pb.ConfigurationRequest) -> pb.ConfigurationAnswer:
        return pb.ConfigurationAnswer(values=self._describe_settings())

    async def internal_configuration(self, request: pb.ConfigurationRequest) -> pb.ConfigurationAnswer:
        metadata = self._describe_settings().get("metadata", "")
        names = ("metadataStoreUrl", "configurationMetadataStoreUrl", "zookeeperServers", "configurationStoreServers")
        urls = dict.fromkeys(names, metadata) if metadata else {}
        return pb.ConfigurationAnswer(values=urls | {"ledgersRootPath": LEDGERS})

    async def dynamic_settings(self, request: pb.ConfigurationRequest) -> pb.DynamicSettingsAnswer:
        return pb.DynamicSettingsAnswer(settings=self._dynamic.settings.public_names)

    async def dynamic_configuration(self, request: pb.ConfigurationRequest) -> pb.ConfigurationAnswer:
        overrides = await self._dynamic.read()
        return pb.ConfigurationAnswer(
            values={self._dynamic.settings.public_name(name): value for name, value in overrides.items()}
        )

    async def set_dynamic_setting(self, request: pb.DynamicSettingRequest) -> pb.Done:
        await self._dynamic.set(self._find(request.name), request.value)
        return pb.Done()

    async def delete_dynamic_setting(self, request: pb.DynamicSettingRequest) -> pb.Done:
        await self._dynamic.delete(self._find(request.name))
        return pb.Done()

    def _find(self, name: str) -> str:
        try:
            return self._dynamic.settings.find(name)
        except NotDynamic as error:
            raise BrokerError(ErrorCode.NOT_ALLOWED, str(error)) from None
