"""Making messages of a delivered entry, so many or so large at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from magnetar._message import Delivered, Message

__all__ = ["cut", "fitting", "payload_bytes"]


def cut(delivered: Delivered, count: int) -> tuple[list[Message], Sequence[int]]:
    """The entry's next messages, so many or all, and what is left of it then. Changes nothing."""
    todo = delivered.todo
    if len(todo) <= count:
        return list(map(Message, repeat(delivered), todo)), []
    return list(map(Message, repeat(delivered), todo[:count])), todo[count:]


def cut_segment(
    entries: Iterable[Delivered], count: int
) -> tuple[list[Message], list[Delivered], Delivered | None, Sequence[int]]:
    """The next so many messages of entries, or all. Of which entries there is nothing left then; and the one of which
    there is something, and what. Changes nothing."""
    messages: list[Message] = []
    whole: list[Delivered] = []
    for delivered in entries:
        todo = delivered.todo
        if len(todo) > count:
            messages.extend(map(Message, repeat(delivered), todo[:count]))
            return messages, whole, delivered, todo[count:]
        messages.extend(map(Message, repeat(delivered), todo))
        whole.append(delivered)
        count -= len(todo)
        if not count:
            break
    return messages, whole, None, ()


def payload_bytes(message: Message) -> int:
    return len(message._delivered.columns.payloads[message._at] or b"")


def fitting(delivered: Delivered, max_messages: int, room: int, may_be_none: bool) -> int:
    """How many of its next messages there is room for; at least one, unless there may be none."""
    payloads = delivered.columns.payloads
    count = 0
    for at in delivered.todo[:max_messages]:
        room -= len(payloads[at] or b"")
        if room < 0 and (count or may_be_none):
            break
        count += 1
    return count
