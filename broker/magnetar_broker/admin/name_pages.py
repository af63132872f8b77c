"""Cut a list of names into the pages that responses hold."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_protos import admin_pb2 as pb

__all__ = ["cut_page"]


def cut_page(names: Iterable[str], request: pb.NamesRequest, max_names: int) -> pb.NamesAnswer:
    """Return the names after `request.after`, in order, at most as many as the request and the setting allow."""
    after = sorted(name for name in names if name > request.after)
    limit = min(request.limit or max_names, max_names)
    return pb.NamesAnswer(names=after[:limit], more=len(after) > limit)
