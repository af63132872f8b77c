"""Settings of Hypothesis: no test fails because an example took long, as one does on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")
