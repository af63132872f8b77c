"""`magnetar standalone`: metadata store, one bookie and the broker in one process, data in a folder.

standalone.py     Standalone: what runs, for the command, for tests, and in one's own process
settings.py       all that can be set about it
data_folder.py    the folder, which one process has at a time, and temporary ones
run.py            the process: signals, exit statuses
command.py        the command line
"""

from __future__ import annotations
