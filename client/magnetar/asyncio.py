"""`magnetar.aio` under the name that Pulsar's Python client gives its own: `from magnetar.asyncio import Client`.

It has every exception as well. In this package, too, `import asyncio` is Python's module: imports are absolute.
"""

from __future__ import annotations

from magnetar import aio, exceptions
from magnetar.aio import *  # noqa: F403 (it is that module by another name)
from magnetar.exceptions import *  # noqa: F403

# In the form that type checkers understand.
__all__: list[str] = []
__all__ += aio.__all__
__all__ += exceptions.__all__
