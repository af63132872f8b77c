"""`magnetar.aio` under the name of Pulsar's Python client: `from magnetar.asyncio import Client`.

It exports every exception as well. In this package, `import asyncio` still imports Python's module, because imports
are absolute.
"""

from __future__ import annotations

from magnetar import aio, exceptions
from magnetar.aio import *  # noqa: F403 (the same module under another name)
from magnetar.exceptions import *  # noqa: F403

# Type checkers understand this form.
__all__: list[str] = []
__all__ += aio.__all__
__all__ += exceptions.__all__
