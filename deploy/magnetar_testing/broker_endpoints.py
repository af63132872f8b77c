"""The addresses of a broker that a test has started, and clients for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import magnetar
    import magnetar.admin
    import magnetar.aio

__all__ = ["BrokerEndpoints"]


class BrokerEndpoints:
    """URLs are empty until the broker is started for the first time."""

    # magnetar://127.0.0.1:PORT, for magnetar.Client.
    service_url: str = ""
    # pulsar://127.0.0.1:PORT, for clients of Pulsar.
    pulsar_url: str = ""
    # http://127.0.0.1:PORT, which serves /health and /metrics.
    http_url: str = ""

    def client(self, **options: Any) -> magnetar.Client:
        """Create a client. The caller closes it, or uses it as a context manager."""
        import magnetar

        return magnetar.Client(self.service_url, **options)

    def aio_client(self, **options: Any) -> magnetar.aio.Client:
        """Create a client for asyncio: `async with broker.aio_client() as client`."""
        import magnetar.aio

        return magnetar.aio.Client(self.service_url, **options)

    def admin(self, **options: Any) -> magnetar.admin.Admin:
        """Create an administration client. The caller closes it, or uses it as a context manager."""
        import magnetar.admin

        return magnetar.admin.Admin(self.service_url, **options)
