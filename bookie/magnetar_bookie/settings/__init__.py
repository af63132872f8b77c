"""All settings of a bookie, one module per part; `process.py` has them together, with those of the process itself.

ledger_client.py   the ledger client, which brokers have, too
server.py          requests and memory of a bookie
storage.py         its disk
auto_recovery.py   the auditor and the replication workers
"""

from __future__ import annotations
