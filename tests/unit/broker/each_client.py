"""A real broker in this process, and one of the clients that applications use: our library's synchronous client or its
asyncio client over gRPC, or pulsar-client for Python over Pulsar's protocol.

The test is synchronous, and the broker runs on the loop that synchronous clients share. So one test shows what each
client does with the broker, and what is stored of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any

import pulsar

import magnetar
from magnetar import aio
from magnetar._threads.event_loop import background
from magnetar_wire.batch import Messages, decode_messages
from magnetar_wire.entry import Entry, decode_entry
from magnetar_wire.topic_name import TopicName
from tests.running import GENEROUS_S, until
from tests.unit.broker.broker_scene import URL, BrokerScene

__all__ = ["KINDS", "EachClient", "each_client"]

KINDS = ("sync", "aio", "stock")
LONG_MS = 60_000


class EachClient:
    """`client` is of the given kind; `readers` are clients of both listeners."""

    def __init__(self, kind: str, scene: BrokerScene, client: Any, readers: list[Any]) -> None:
        self.kind = kind
        self.scene = scene
        self.client = client
        self.readers = readers
        self.is_ours = kind != "stock"
        self.library: Any = magnetar if self.is_ours else pulsar
        self.errors: Any = magnetar.exceptions if self.is_ours else pulsar

    def run(self, call: Callable[[], Any]) -> Any:
        """Call it on the broker's loop, and return its result."""
        return _run(call)

    def until(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        background.run(until(condition, what))

    def start_sends(
        self, producer: Any, *contents: bytes, partition_keys: Sequence[str | None] = (), **fields: Any
    ) -> list[Future[Any]]:
        """Send messages, in one piece, without waiting for their results, which the futures get."""
        keys = partition_keys or [fields.pop("partition_key", None)] * len(contents)
        messages = [
            {"content": content, "partition_key": key, **fields} for content, key in zip(contents, keys, strict=True)
        ]
        results: list[Future[Any]] = [Future() for _ in contents]
        if self.kind == "aio":
            background.call_soon(partial(_send_all, producer.wrapped, messages, results))
            return results
        for message, result in zip(messages, results, strict=True):
            try:
                producer.send_async(callback=partial(self._set_result, result), **message)
            except magnetar.MagnetarException as error:
                result.set_exception(error)
        return results

    def start_send(self, producer: Any, content: bytes, **fields: Any) -> Future[Any]:
        return self.start_sends(producer, content, **fields)[0]

    def _set_result(self, result: Future[Any], code: Any, message_id: Any) -> None:
        if code.name == "Ok":
            result.set_result(message_id)
        else:
            result.set_exception(getattr(self.errors, code.name)())

    def send_all(self, producer: Any, *contents: bytes, **fields: Any) -> list[Any]:
        """Send messages in one piece, and return their ids."""
        results = self.start_sends(producer, *contents, **fields)
        producer.flush()
        return [one.result(GENEROUS_S) for one in results]

    def entries(self, topic: str) -> list[Entry]:
        """Return what is stored in a topic, or partition, that is loaded."""
        entries: list[Entry] = self.run(partial(_read_entries, self.scene, topic))
        return entries

    def batches(self, topic: str) -> list[Messages]:
        return [decode_messages(entry) for entry in self.entries(topic)]

    def payloads(self, topic: str) -> list[bytes]:
        """Return what is stored, by message. Readers of both listeners must get the same."""
        stored = [bytes(payload or b"") for messages in self.batches(topic) for payload in messages.payloads]
        assert self.read(topic, len(stored)) == stored
        return stored

    def read(self, topic: str, count: int) -> list[bytes]:
        """Return the messages, of which there are `count`. Readers of both listeners must get the same."""
        found: list[list[bytes]] = []
        for client in self.readers:
            reader = client.create_reader(topic, _earliest(client))
            found.append([reader.read_next(LONG_MS).data() for _ in range(count)])
            assert not reader.has_message_available()
            reader.close()
        assert found[0] == found[1]
        return found[0]

    def hold_bookies(self) -> None:
        """Let the broker store nothing until `resume_bookies`."""
        for bookie in self.scene.bookies:
            self.run(bookie.hold)

    def resume_bookies(self) -> None:
        for bookie in self.scene.bookies:
            self.run(bookie.resume)

    def count_adds(self) -> int:
        """Return how many requests to store an entry all bookies have got."""
        return sum(method == "add" for bookie in self.scene.bookies for method, _ in bookie.calls)


def _earliest(client: Any) -> Any:
    return (pulsar if isinstance(client, pulsar.Client) else magnetar).MessageId.earliest


def _run(call: Callable[[], Any]) -> Any:
    async def go() -> Any:
        result = call()
        return await result if isawaitable(result) else result

    return background.run(go())


def _send_all(producer: aio.Producer[Any], messages: list[dict[str, Any]], results: list[Future[Any]]) -> None:
    for message, result in zip(messages, results, strict=True):
        task = asyncio.get_running_loop().create_task(producer.send(**message))
        task.add_done_callback(partial(_copy_result, result))


def _copy_result(result: Future[Any], done: asyncio.Task[Any]) -> None:
    error = done.exception()
    if error is None:
        result.set_result(done.result())
    else:
        result.set_exception(error)


async def _read_entries(scene: BrokerScene, topic: str) -> list[Entry]:
    loaded = scene.broker_session.topics.get_loaded(TopicName.parse(topic))
    assert loaded is not None
    log, position, found = loaded.log, loaded.log.before_first, list[Entry]()
    # A read ends with its ledger.
    while part := await log.read(log.first_after(position), 10_000, 2**26):
        found += [decode_entry(one.stored) for one in part]
        position = part[-1].position
    return found


class _Blocking:
    """An object of the asyncio client. Its coroutines are run on the clients' loop, and waited for."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            result = _run(lambda: getattr(self.wrapped, name)(*arguments, **options))
            return _Blocking(result) if isinstance(result, aio.Producer | aio.Consumer | aio.Reader) else result

        return call


class _KeepsLoop:
    """What the shared loop runs for while there is no other client."""

    async def _suspend(self) -> None: ...

    def _resume(self) -> None: ...

    def _forked(self) -> None: ...

    def _close_at_exit(self, timeout_s: float) -> None: ...


@contextmanager
def each_client(kind: str, **settings: Any) -> Iterator[EachClient]:
    """Yield a client of this kind, of a broker with these settings."""
    keeps_loop = _KeepsLoop()
    with ExitStack() as stack:
        background.enter(keeps_loop)
        stack.callback(background.leave, keeps_loop)
        scene = _run(lambda: BrokerScene(pulsar=True, **settings))
        _run(scene.start)
        stack.callback(_run, scene.close)
        ours = stack.enter_context(magnetar.Client(URL, _transport=scene.transport))
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        address = scene.broker.pulsar_listeners[0].address
        stock = pulsar.Client(f"pulsar://{address}", logger=quiet)
        stack.callback(stock.close)
        client: Any = stock if kind == "stock" else ours
        if kind == "aio":
            client = _Blocking(_run(scene.client))
            stack.callback(client.close)
        yield EachClient(kind, scene, client, [ours, stock])
