"""Any text as one component of a path, and back: of a node's path in the metadata store, of a URL of the admin API.

The encoding is percent-encoding of the UTF-8, of everything but ASCII letters, digits and `_-~.`. Two texts never share
a component, since what stands for itself is never what an escape is made of. Three things are not as a plain
percent-encoder has them:

- `.` and `..`, which an encoder leaves alone, are `%2E` and `%2E%2E`: as they are, ZooKeeper refuses them and a URL
  library takes them for "here" and "one up". (Many URL libraries do so with the escaped form too; so nothing that is
  reached by its own URL may have such a name, and topics can't.)
- The empty text has no component: `a//b` is not a path.
- Reading takes `+` for a space, as Pulsar's own tools write it. Writing never writes one.

Reading is not strict about what might have been left unescaped (`%7E` is `~`): other people's tools differ in that.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

# Of one byte of text, at most three are made.
GROWTH: Final = 3

_DOTS: Final = {".": "%2E", "..": "%2E%2E"}
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def encode_path_component(text: str) -> str:
    """The component that stands for `text`. Raises ValueError if there is none: `text` is empty or has surrogates."""
    if not text:
        raise ValueError("a component of a path can't be empty")
    return _DOTS.get(text) or quote(text, safe="")


def decode_path_component(component: str) -> str:
    """The text that `component` stands for. Raises ValueError if it stands for none."""
    if not component or "/" in component:
        raise ValueError(f"{component!r} is not one component of a path")
    if _BROKEN_ESCAPE.search(component):
        raise ValueError(f"{component!r} is not percent-encoded: it has a % without two hexadecimal digits after it")
    return unquote_to_bytes(component.replace("+", " ")).decode("utf-8")
