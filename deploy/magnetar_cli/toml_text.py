"""Write values as TOML, which Python's library can only read."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["toml_text"]


def toml_text(value: Any) -> str:
    """Return a value of plain types as TOML."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)} = {toml_text(one)}' for name, one in value.items())}}}"
    # TOML writes numbers, true, false and text as JSON does.
    return json.dumps(value, ensure_ascii=False)
