"""Find the route of a request's path: the broker's side of route.py.

Paths are compared by their segments. A segment that is written out goes before a placeholder. If that
route lacks the verb, the next one that fits is found. Paths that Pulsar has and Magnetar lacks are
`UnsupportedRoute`, or `UnsupportedFamily` for all paths that begin alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from magnetar_wire.admin.http.route import DOMAINS, InvalidTarget, split_path

__all__ = ["Match", "RouteTable", "UnsupportedFamily", "UnsupportedRoute"]

T = TypeVar("T")
_DOMAIN: Final = "{domain}"


@dataclass(frozen=True, slots=True)
class UnsupportedRoute:
    """A path of Pulsar's REST API that is answered with 405."""

    verb: str
    path: str
    # What is missing, as the subject of "… is not supported yet".
    missing: str

    @property
    def segments(self) -> list[str]:
        return split_path(self.path)


@dataclass(frozen=True, slots=True)
class UnsupportedFamily:
    """All paths that begin with this one, with any verb, are answered with 405, unless they have routes."""

    path: str
    # What is missing, as the subject of "… is not supported yet".
    missing: str

    @property
    def segments(self) -> list[str]:
        return split_path(self.path)


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """What a path is: a route's owner, and the decoded segments of its placeholders."""

    # None: the path exists, but not with this verb.
    found: T | None
    values: tuple[str, ...]
    # The verbs that the path has.
    verbs: tuple[str, ...]


class _Node(Generic[T]):
    __slots__ = ("any", "domain", "literals", "routes")

    def __init__(self) -> None:
        self.literals: dict[str, _Node[T]] = {}
        # The next node of a segment that is a domain, and of any segment.
        self.domain: _Node[T] | None = None
        self.any: _Node[T] | None = None
        self.routes: dict[str, T] = {}


class RouteTable(Generic[T]):
    """Finds what serves a path, by its segments: a segment that is written out goes before a placeholder."""

    def __init__(
        self, routes: Iterable[tuple[str, Sequence[str], T]], families: Iterable[tuple[Sequence[str], T]] = ()
    ) -> None:
        """`routes`: verb, segments (`Route.segments`), and what is found. `families`: the first segments of paths that
        have no route, and what is found for them. Raises ValueError if two routes are alike."""
        self._families = list(families)
        self._root: _Node[T] = _Node()
        for verb, segments, found in routes:
            node = self._root
            for segment in segments:
                if segment == _DOMAIN:
                    node.domain = node.domain or _Node()
                    node = node.domain
                elif segment.startswith("{"):
                    node.any = node.any or _Node()
                    node = node.any
                else:
                    node = node.literals.setdefault(segment, _Node())
            if verb in node.routes:
                raise ValueError(f"two routes {verb} /{'/'.join(segments)}")
            node.routes[verb] = found

    def find(self, verb: str, raw_path: bytes) -> Match[T] | None:
        """Return what the path is; None: there is no such path. Raises InvalidTarget if it can't be decoded."""
        segments = raw_path.split(b"?", 1)[0].removeprefix(b"/").removesuffix(b"/").split(b"/")
        if len(segments) > 20:
            return None
        try:
            decoded = [unquote_to_bytes(segment).decode("utf-8") for segment in segments]
        except UnicodeDecodeError as error:
            raise InvalidTarget(f"the path is not UTF-8: {error}") from None
        if "" in decoded:
            return None
        verbs: list[str] = []
        for node, values in self._walk(self._root, decoded, 0, ()):
            found = node.routes.get(verb)
            if found is not None:
                return Match(found, values, tuple(node.routes))
            verbs += node.routes
        if verbs:
            return Match(None, (), tuple(sorted(set(verbs))))
        family = next((found for first, found in self._families if _begins_with(decoded, first)), None)
        return None if family is None else Match(family, (), ())

    def _walk(
        self, node: _Node[T], segments: Sequence[str], at: int, values: tuple[str, ...]
    ) -> Iterator[tuple[_Node[T], tuple[str, ...]]]:
        if at == len(segments):
            if node.routes:
                yield node, values
            return
        literal = node.literals.get(segments[at])
        if literal is not None:
            yield from self._walk(literal, segments, at + 1, values)
        if node.domain is not None and segments[at] in DOMAINS:
            yield from self._walk(node.domain, segments, at + 1, (*values, segments[at]))
        if node.any is not None:
            yield from self._walk(node.any, segments, at + 1, (*values, segments[at]))


def _begins_with(segments: Sequence[str], first: Sequence[str]) -> bool:
    pairs = zip(segments, first, strict=False)
    return len(segments) >= len(first) and all(one == wanted or wanted.startswith("{") for one, wanted in pairs)
