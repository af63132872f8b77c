"""All settings of a broker, one module per part.

`service.py` has all parts together, and `process.py` what a process adds: addresses, gRPC, HTTP, logs.
"""

from __future__ import annotations
