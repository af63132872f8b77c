"""`magnetar standalone`: metadata store, one bookie and the broker in one process, data in a folder.

standalone.py     Standalone: metadata store, bookie and broker; also for tests, and for use in another program
entry_reads.py    the gRPC address that broker and bookie share
lazy_http.py      HTTP, whose libraries are imported after the start
data_folder.py    the data folder, which one process locks, and temporary folders
settings.py       all settings
run.py            the process: signals and exit statuses
command.py        the command line
"""

from __future__ import annotations
