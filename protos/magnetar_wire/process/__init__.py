"""The common part of `magnetar bookie`, `magnetar broker` and `magnetar standalone`.

settings.py        settings that all of them have
exit_status.py     exit statuses
stop_signals.py    SIGTERM and SIGINT
ending.py          steps of a shutdown, each with a time-out
open_files.py      the maximum number of open files
addresses.py       host:port in settings
listeners.py       advertised listeners and bind addresses
event_loop.py      the event loop
"""

from __future__ import annotations
