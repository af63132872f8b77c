"""The client of Magnetar: `magnetar.Client`, and `magnetar.aio` for asyncio."""
