"""What every process of ours does as one: `magnetar bookie`, `magnetar broker`, `magnetar standalone`.

exit_status.py     what its end says to whoever started it
stop_signals.py    SIGTERM and SIGINT
ending.py          steps on the way to the end, each within its bound
open_files.py      how many files it may have open
addresses.py       host:port, in its settings
"""

from __future__ import annotations
