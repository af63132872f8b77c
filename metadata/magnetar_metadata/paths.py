"""The paths that a node can have, and relations of paths.

A path is "/", or "/" and names with "/" between them. The rules are the strictest of all stores, so a path that one
store accepts can be used with all. ZooKeeper refuses control characters, surrogates (and with them, since it uses
UTF-16, all characters above U+FFFF), the private use area and the specials. The embedded store separates keys with a
zero byte.

Two top-level names are reserved: they can't be read or changed, and are not among the children of "/". ZooKeeper stores
its own nodes below one. Below the other are the change counters of the declared subtree roots, one node per root, with
the root's path as its name ("%" and "/" escaped).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from magnetar_metadata.errors import InvalidPath
from magnetar_metadata.store import MAX_PATH_BYTES

ROOT: Final = "/"
CHANGE_COUNTERS: Final = "/change-counters"
_RESERVED: Final = (CHANGE_COUNTERS, "/zookeeper")
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


@lru_cache(maxsize=1024)
def check_path(path: str) -> None:
    """Raise `InvalidPath` unless a node can have this path and be read."""
    if not path.startswith("/"):
        raise InvalidPath(f"the path {path!r} does not begin with '/'")
    found = _FORBIDDEN.search(path)
    if found is not None:
        raise InvalidPath(f"the path {path!r} contains U+{ord(found.group()):04X}, which is not allowed")
    # A character has at most four bytes, so most paths need not be encoded for this check.
    if len(path) * 4 > MAX_PATH_BYTES and len(path.encode()) > MAX_PATH_BYTES:
        raise InvalidPath(
            f"the path {path[:80]!r}… has {len(path.encode())} bytes, above the limit of {MAX_PATH_BYTES}"
        )
    if path == ROOT:
        return
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise InvalidPath(f"the path {path!r} has the component {name!r}, which is not allowed")
    if is_reserved(path):
        raise InvalidPath(f"the path {path!r} is reserved for the store itself")


def is_reserved(path: str) -> bool:
    return any(is_at_or_below(path, reserved) for reserved in _RESERVED)


def is_at_or_below(path: str, root: str) -> bool:
    return path == root or root == ROOT or path.startswith(root + "/")


def parent_of(path: str) -> str:
    """Return the parent's path; not for "/"."""
    return path[: path.rindex("/")] or ROOT


def ancestors_of(path: str) -> list[str]:
    """Return all nodes above this one, from the top down, without "/"."""
    cuts = [index for index, character in enumerate(path) if character == "/"]
    return [path[:cut] for cut in cuts[1:]]


def join(parent: str, name: str) -> str:
    return parent + name if parent == ROOT else f"{parent}/{name}"


def list_visible_names(parent: str, names: Iterable[str]) -> list[str]:
    """Return the sorted names of a node's children without reserved ones."""
    return sorted(name for name in names if parent != ROOT or not is_reserved(join(ROOT, name)))


def check_declared(root: str, roots: Sequence[str]) -> None:
    """Raise `InvalidPath` unless `root` is one of the declared subtree roots."""
    if root not in roots:
        raise InvalidPath(f"{root!r} is not a declared subtree root: use one of {', '.join(roots) or 'none'}")


def check_roots(roots: Sequence[str]) -> tuple[str, ...]:
    """Return the declared subtree roots, sorted and without duplicates, so that their order does not matter."""
    for root in roots:
        check_path(root)
    return tuple(sorted(dict.fromkeys(roots)))


def find_roots_above(path: str, roots: Iterable[str]) -> list[str]:
    """Return the declared roots at or above this node."""
    return [root for root in roots if is_at_or_below(path, root)]


def counter_path(root: str) -> str:
    """Return the path of the change counter of `root`."""
    return f"{CHANGE_COUNTERS}/{root.replace('%', '%25').replace('/', '%2F')}"
