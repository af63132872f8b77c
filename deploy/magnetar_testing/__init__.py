"""Tests of applications that use Magnetar, and of Magnetar itself.

clock             ManualClock, a fake clock
metadata/         a metadata server in memory that injects faults
"""

from __future__ import annotations
