"""`magnetar perf …`: measure publishing and receiving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from magnetar_cli.options import (
    AsJson,
    Compression,
    ListenerName,
    Start,
    SubscriptionType,
    Topic,
    Url,
    to_compression_type,
)
from magnetar_cli.service import DEFAULT_URL, call_admin, connect_client, exit_on_error

if TYPE_CHECKING:
    from magnetar.admin import Admin

app = typer.Typer(help="Measure throughput and latency.", no_args_is_help=True, pretty_exceptions_enable=False)

_MAX_BATCH: Final = 5_000
Messages = Annotated[int, typer.Option("--messages", "--count", "-m", min=0, help="Number of messages; 0: no limit.")]
Seconds = Annotated[float, typer.Option("--seconds", "-t", min=0, help="Maximum duration; 0: no limit.")]


@app.command("produce")
def produce(
    topic: Topic,
    size: Annotated[int, typer.Option("--size", "-s", min=0, help="Size of each message, in random bytes.")] = 1024,
    rate: Annotated[
        float, typer.Option("--rate", "-r", min=0, help="Messages per second of all producers; 0: no limit.")
    ] = 0,
    messages: Messages = 0,
    seconds: Seconds = 0,
    producers: Annotated[int, typer.Option("--producers", "-n", min=1, max=1000, help="Number of producers.")] = 1,
    partitions: Annotated[
        int, typer.Option(min=0, help="Create the topic with this many partitions; 0: do not create it.")
    ] = 0,
    compression: Annotated[Compression, typer.Option(help="Compression of batches.")] = Compression.NONE,
    batching: Annotated[bool, typer.Option(help="Send several messages as one entry.")] = True,
    batch_messages: Annotated[int, typer.Option(min=1, help="Maximum messages of a batch.")] = 1000,
    batch_bytes: Annotated[int, typer.Option(min=1, help="Maximum size of a batch, in bytes.")] = 128 * 1024,
    batch_delay_ms: Annotated[int, typer.Option(min=0, help="Maximum delay of a batch, in ms.")] = 1,
    max_pending: Annotated[int, typer.Option(min=1, help="Maximum messages in flight of a producer.")] = 10_000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Publish messages, and print throughput and publish latency each second and at the end.

    With --rate, a message's latency counts from when it was due, even if it could not be sent then.
    """
    if partitions:
        call_admin(url, lambda admin: _create_topic(admin, topic, partitions), changes=True)
    with exit_on_error():
        from magnetar_cli.perf.load import Load
        from magnetar_cli.perf.publisher import measure_publishing

        with connect_client(url, listener_name) as client:
            created = [
                client.create_producer(
                    topic,
                    compression_type=to_compression_type(compression),
                    batching_enabled=batching,
                    batching_max_messages=batch_messages,
                    batching_max_allowed_size_in_bytes=batch_bytes,
                    batching_max_publish_delay_ms=batch_delay_ms,
                    max_pending_messages=max_pending,
                    block_if_queue_full=True,
                )
                for _ in range(producers)
            ]
            code = measure_publishing(client, created, Load(size, rate, messages, seconds), as_json=as_json)
    raise typer.Exit(code)


@app.command("consume")
def consume(
    topic: Topic,
    subscription: Annotated[
        str, typer.Option("--subscription", "-s", help="Subscription name; created if it does not exist.")
    ] = "perf",
    subscription_type: Annotated[
        SubscriptionType, typer.Option("--type", help="Subscription type.")
    ] = SubscriptionType.EXCLUSIVE,
    start: Annotated[Start, typer.Option(help="Start position of a new subscription.")] = Start.LATEST,
    messages: Messages = 0,
    seconds: Seconds = 0,
    queue: Annotated[int, typer.Option(min=1, help="Receiver queue size, in messages.")] = 10_000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Receive and acknowledge messages, and print throughput and latency since publish each second and at the end.

    Exit status 5: fewer than --messages within --seconds.
    """
    with exit_on_error():
        from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition
        from magnetar_cli.perf.receiver import measure_receiving

        with (
            connect_client(url, listener_name) as client,
            client.subscribe(
                topic,
                subscription,
                ConsumerType[subscription_type.consumer_type],
                receiver_queue_size=queue,
                batch_receive_policy=ConsumerBatchReceivePolicy(min(queue, _MAX_BATCH), 8 << 20, 10),
                initial_position=InitialPosition[start.capitalize()],
            ) as consumer,
        ):
            code = measure_receiving(
                consumer,
                messages=messages,
                seconds=seconds,
                cumulative=subscription_type.delivers_in_order,
                as_json=as_json,
            )
    raise typer.Exit(code)


def _create_topic(admin: Admin, topic: str, partitions: int) -> None:
    from magnetar.exceptions import AlreadyExists

    try:
        admin.topics.create_partitioned(topic, partitions)
    except AlreadyExists:
        existing = len(admin.topics.owners(topic))
        if existing != partitions:
            raise AlreadyExists(
                f"{topic} has {existing:,} partitions, not {partitions:,}: use another topic, or leave out --partitions"
            ) from None
