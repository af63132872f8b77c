"""The common part of `magnetar bookie`, `magnetar broker` and `magnetar standalone`.

settings.py               settings that all of them have
addresses.py              host:port in settings
advertised_listeners.py   advertised listeners and bind addresses
http_server.py            health, metrics and administration over HTTP
stop_signals.py           SIGTERM and SIGINT
shutdown.py               steps of a shutdown, each with a time-out
exit_status.py            exit statuses
logs.py                   log lines on standard error
"""

from __future__ import annotations
