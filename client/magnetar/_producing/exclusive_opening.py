"""Opens an exclusive producer on all partitions of a topic, or on none (PRD-2).

The producer that has the first partition has the topic. Its epoch is presented at the others:

    partition 0: waits, fences or is refused, by its access mode; gets epoch 7
    partition 1: was opened with epoch 6 of partition 0. That producer has lost partition 0, so it is fenced here
    partition 2: another producer has only this one: the opening is refused, or fences that producer, by its access mode
    partition 3: was opened with epoch 9 of partition 0, which was deleted and created again since. The opening is
                 refused. Partition 0 is reopened with epoch 10, as the same producer, and the others with that
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar._enums import ProducerAccessMode
from magnetar._options import ProducerOptions
from magnetar._producing.partition_producer import PartitionProducer
from magnetar.exceptions import MagnetarException, ProducerFenced

__all__ = ["open_exclusively", "open_with_epoch", "options_of_other_partitions"]

# A refusal after the first repetition means that another producer opens the partitions at the same time.
_ATTEMPTS: Final = 3


def options_of_other_partitions(options: ProducerOptions) -> ProducerOptions:
    """Return the options of partitions other than the first: a producer waits for its turn at the first one only."""
    if options.access_mode is ProducerAccessMode.WaitForExclusive:
        return options.model_copy(update={"access_mode": ProducerAccessMode.Exclusive})
    return options


async def open_exclusively(
    first: PartitionProducer, create_others: Callable[[], list[PartitionProducer]]
) -> list[PartitionProducer]:
    """Open the other partitions with the epoch of the first one, which is open, and return them.

    If it raises an error, none of them is open.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        others = create_others()
        try:
            await open_with_epoch(others, first)
        except ProducerFenced:
            epochs = [one.current_epoch for one in others if one.current_epoch is not None]
            if not epochs or attempt == _ATTEMPTS:
                raise
            await first.raise_epoch(max(epochs) + 1)
        else:
            return others
    raise AssertionError


async def open_with_epoch(partitions: list[PartitionProducer], first: PartitionProducer) -> None:
    """Open partitions at the same time with the epoch of the first one, and wait for all.

    If it raises an error, none of them is open. Then they can be opened with the same epoch later.
    """
    for one in partitions:
        one.topic_epoch = first.topic_epoch
    tasks = [asyncio.get_running_loop().create_task(one.open()) for one in partitions]
    try:
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            await task
    except BaseException as error:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        reason = error if isinstance(error, MagnetarException) else MagnetarException("it was not opened")
        for one in partitions:
            one.end(reason)
        raise
