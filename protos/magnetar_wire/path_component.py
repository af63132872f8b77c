"""Any text as one component of a path: of a node in the metadata store, or of a URL of the admin API.

The encoding is percent-encoding of the UTF-8, of all characters except ASCII letters, digits and `_-~.`. Different
texts have different components. There are three differences from a plain percent-encoder:

- `.` and `..`, which an encoder leaves alone, are `%2E` and `%2E%2E`: ZooKeeper refuses the plain forms, and a URL
  library resolves them. (Many URL libraries resolve the escaped forms, too. So a resource with a URL of its own must
  not have such a name, and topics can't.)
- The empty text has no component: `a//b` is not a path.
- The decoder reads `+` as a space, as Pulsar's own tools write it. The encoder never writes it.

The decoder accepts characters that are escaped unnecessarily (`%7E` is `~`), since other tools do that.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

# The maximum number of encoded bytes for one byte of text.
GROWTH: Final = 3

_DOTS: Final = {".": "%2E", "..": "%2E%2E"}
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def encode_path_component(text: str) -> str:
    """Encode a text. Raises ValueError if it is empty or contains surrogates."""
    if not text:
        raise ValueError("a component of a path can't be empty")
    return _DOTS.get(text) or quote(text, safe="")


def decode_path_component(component: str) -> str:
    """Decode a component. Raises ValueError if it is not a valid one."""
    if not component or "/" in component:
        raise ValueError(f"{component!r} is not one component of a path")
    if _BROKEN_ESCAPE.search(component):
        raise ValueError(f"{component!r} is not percent-encoded: it has a % without two hexadecimal digits after it")
    return unquote_to_bytes(component.replace("+", " ")).decode("utf-8")
