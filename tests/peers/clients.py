"""The same work on any broker with its own Python client: one JSON object a line.

    python clients.py --url pulsar://127.0.0.1:6650                   # pulsar-client, on any listener of that protocol
    python clients.py --url magnetar://127.0.0.1:6652 --module magnetar
    python clients.py --url 127.0.0.1:19092 --kind kafka              # confluent-kafka
    python clients.py --url nats://127.0.0.1:14222 --kind nats        # nats-py, JetStream

Every publish counts only when acknowledged. `--only a,b` picks benches; `--scale 0.1` shrinks the work.
"""

import argparse
import asyncio
import importlib
import json
import os
import threading
import time

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--url", required=True)
arguments.add_argument("--kind", choices=["pulsar", "kafka", "nats"], default="pulsar")
arguments.add_argument("--module", default="pulsar", help="a module with pulsar-client's names")
arguments.add_argument("--label", default="")
arguments.add_argument("--only", default="")
arguments.add_argument("--scale", type=float, default=1.0)
options = arguments.parse_args()
RUN = time.time_ns()


def report(bench, size, **figures):
    print(json.dumps({"label": options.label or options.kind, "bench": bench, "size": size, **figures}), flush=True)


def rates(count, size, seconds, cpu=None):
    extra = {} if cpu is None else {"client_cpu_s": round(cpu, 2)}
    return {"messages_per_s": round(count / seconds), "MB_per_s": round(count * size / seconds / 1e6, 1), **extra}


def percentiles(samples):
    samples = sorted(samples)
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    return {"n": len(samples)} | {
        f"{k}_ms": round(samples[min(len(samples) - 1, int(len(samples) * q))] * 1e3, 3) for k, q in at.items()
    }


def paced(count, rate, act):
    started = time.perf_counter() + 0.05
    for i in range(count):
        due = started + i / rate
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        act(due)


class PulsarClient:
    def __init__(self):
        self.api = importlib.import_module(options.module)
        extra = {"logger": self.api.ConsoleLogger(self.api.LoggerLevel.Error)} if options.module == "pulsar" else {}
        self.client = self.api.Client(options.url, **extra)

    def producer(self, topic, batching=True, delay_ms=5):
        return self.client.create_producer(
            topic,
            batching_enabled=batching,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=131072,
            batching_max_publish_delay_ms=delay_ms,
            max_pending_messages=20000,
            block_if_queue_full=True,
        )

    def publish_each_acked(self, topic, size, count, batching):
        producer, body, left, done, errors = (
            self.producer(topic, batching),
            os.urandom(size),
            [count],
            threading.Event(),
            [],
        )
        producer.send(body)

        def acked(result, _id):
            if result != self.api.Result.Ok:
                errors.append(result)
            left[0] -= 1
            if not left[0]:
                done.set()

        started, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            producer.send_async(body, acked)
        producer.flush()
        assert done.wait(60) and not errors, errors[:1]
        figures = rates(count, size, time.perf_counter() - started, time.process_time() - cpu)
        producer.close()
        return figures

    def publish_flushed(self, topic, size, count):
        producer, body = self.producer(topic), os.urandom(size)
        producer.send(body)
        started, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            producer.send_async(body, None)
        producer.flush()
        figures = rates(count, size, time.perf_counter() - started, time.process_time() - cpu)
        producer.close()
        return figures

    def consume(self, topic, size, count, batch):
        policy = self.api.ConsumerBatchReceivePolicy(1000, 10 << 20, 50)
        consumer = self.client.subscribe(
            topic,
            f"s{time.time_ns()}",
            initial_position=self.api.InitialPosition.Earliest,
            receiver_queue_size=5000,
            batch_receive_policy=policy,
        )
        started, cpu, got = time.perf_counter(), time.process_time(), 0
        while got < count:
            got += len(consumer.batch_receive()) if batch else len([consumer.receive(10000)])
        figures = rates(got, size, time.perf_counter() - started, time.process_time() - cpu)
        consumer.close()
        return figures

    def one_at_a_time(self, topic, size, count):
        producer, body, samples = self.producer(topic, batching=False), os.urandom(size), []
        for _ in range(count):
            started = time.perf_counter()
            producer.send(body)
            samples.append(time.perf_counter() - started)
        producer.close()
        return percentiles(samples[count // 10 :])

    def publish_latency(self, topic, size, rate, seconds, batching):
        producer, body, samples, done = self.producer(topic, batching, 1), os.urandom(size), [], threading.Event()
        for _ in range(100):
            producer.send(body)
        count = int(rate * seconds)

        def act(due):
            def acked(_result, _id):
                samples.append(time.perf_counter() - due)
                if len(samples) == count:
                    done.set()

            producer.send_async(body, acked)

        paced(count, rate, act)
        assert done.wait(60)
        producer.close()
        return percentiles(samples)

    def end_to_end(self, topic, size, rate, seconds):
        consumer = self.client.subscribe(topic, "e2e")
        producer, body, samples, count = self.producer(topic, batching=False), os.urandom(size), [], int(rate * seconds)

        def receiving():
            while len(samples) < count:
                message = consumer.receive(10000)
                samples.append(time.perf_counter() - float(message.properties()["t"]))
                consumer.acknowledge(message)

        thread = threading.Thread(target=receiving)
        thread.start()
        paced(count, rate, lambda due: producer.send_async(body, None, properties={"t": repr(due)}))
        thread.join(60)
        producer.close()
        consumer.close()
        return percentiles(samples)

    def close(self):
        self.client.close()


class KafkaClient:
    def __init__(self):
        self.api = importlib.import_module("confluent_kafka")
        self.base = {"bootstrap.servers": options.url}

    def producer(self, batching=True, delay_ms=5):
        return self.api.Producer(
            {
                **self.base,
                "acks": "all",
                "linger.ms": delay_ms if batching else 0,
                "batch.num.messages": 1000 if batching else 1,
                "batch.size": 131072,
                "queue.buffering.max.messages": 100000,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )

    def sending(self, producer, topic, body, acked):
        while True:
            try:
                return producer.produce(topic, body, on_delivery=acked)
            except BufferError:
                producer.poll(0.005)

    def publish(self, topic, size, count, batching, callback):
        producer, body, good = self.producer(batching), os.urandom(size), [0]

        def acked(error, _message):
            if error is None:
                good[0] += 1

        producer.produce(topic, body)
        producer.flush()
        started, cpu = time.perf_counter(), time.process_time()
        for i in range(count):
            self.sending(producer, topic, body, acked if callback else None)
            if not i % 1000:
                producer.poll(0)
        assert producer.flush(60) == 0 and (good[0] == count or not callback)
        return rates(count, size, time.perf_counter() - started, time.process_time() - cpu)

    def publish_each_acked(self, topic, size, count, batching):
        return self.publish(topic, size, count, batching, True)

    def publish_flushed(self, topic, size, count):
        return self.publish(topic, size, count, True, False)

    def consume(self, topic, size, count, batch):
        consumer = self.api.Consumer({**self.base, "group.id": f"s{time.time_ns()}", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        got, started, cpu = len(consumer.consume(1, 30)), time.perf_counter(), time.process_time()
        while got < count:
            got += len(consumer.consume(1000, 1)) if batch else (consumer.poll(10) is not None)
        figures = rates(got, size, time.perf_counter() - started, time.process_time() - cpu)
        consumer.close()
        return figures

    def one_at_a_time(self, topic, size, count):
        producer, body, samples = self.producer(False), os.urandom(size), []
        for _ in range(count):
            started = time.perf_counter()
            producer.produce(topic, body)
            producer.flush()
            samples.append(time.perf_counter() - started)
        return percentiles(samples[count // 10 :])

    def publish_latency(self, topic, size, rate, seconds, batching):
        producer, body, samples = self.producer(batching, 1), os.urandom(size), []
        producer.produce(topic, body)
        producer.flush()
        stop = threading.Event()

        def polling():
            while not stop.is_set():
                producer.poll(0.01)

        thread = threading.Thread(target=polling)
        thread.start()
        act = lambda due: producer.produce(
            topic, body, on_delivery=lambda _e, _m: samples.append(time.perf_counter() - due)
        )  # noqa: E731
        paced(int(rate * seconds), rate, act)
        producer.flush(30)
        stop.set()
        thread.join()
        return percentiles(samples)

    def end_to_end(self, topic, size, rate, seconds):
        producer, body, samples, count = self.producer(False), os.urandom(size), [], int(rate * seconds)
        producer.produce(topic, body)
        producer.flush()
        consumer = self.api.Consumer({**self.base, "group.id": "e2e", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        consumer.consume(1, 30)

        def receiving():
            while len(samples) < count:
                message = consumer.poll(10)
                samples.append(time.perf_counter() - float(message.headers()[0][1]))

        thread = threading.Thread(target=receiving)
        thread.start()

        def act(due):
            producer.produce(topic, body, headers={"t": repr(due)})
            producer.poll(0)

        paced(count, rate, act)
        producer.flush(30)
        thread.join(60)
        consumer.close()
        return percentiles(samples)

    def close(self):
        pass


class NatsClient:
    def __init__(self):
        self.api, self.loop = importlib.import_module("nats"), asyncio.new_event_loop()
        self.connection = self.loop.run_until_complete(self.api.connect(options.url))
        self.stream = self.connection.jetstream(timeout=60, publish_async_max_pending=20000)

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def topic(self, topic):
        name = topic.replace("-", "")
        try:
            self.run(self.stream.add_stream(name=name, subjects=[name]))
        except self.api.js.errors.BadRequestError:
            pass
        return name

    def publish_each_acked(self, topic, size, count, batching):
        name, body = self.topic(topic), os.urandom(size)

        async def go():
            await self.stream.publish(name, body)
            started, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                await self.stream.publish_async(name, body)
            await self.stream.publish_async_completed()
            return rates(count, size, time.perf_counter() - started, time.process_time() - cpu)

        return self.run(go())

    def publish_flushed(self, topic, size, count):
        return self.publish_each_acked(topic, size, min(count, 200000), True)

    def consume(self, topic, size, count, batch):
        name, count = self.topic(topic), min(count, 200000)

        async def go():
            subscription = await self.stream.pull_subscribe(
                name,
                f"d{time.time_ns()}",
                config=self.api.js.api.ConsumerConfig(ack_policy=self.api.js.api.AckPolicy.NONE),
            )
            started, cpu, got = time.perf_counter(), time.process_time(), 0
            while got < count:
                got += len(await subscription.fetch(min(1000, count - got) if batch else 1, timeout=10))
            return rates(got, size, time.perf_counter() - started, time.process_time() - cpu)

        return self.run(go())

    def one_at_a_time(self, topic, size, count):
        name, body, samples = self.topic(topic), os.urandom(size), []

        async def go():
            for _ in range(count):
                started = time.perf_counter()
                await self.stream.publish(name, body)
                samples.append(time.perf_counter() - started)

        self.run(go())
        return percentiles(samples[count // 10 :])

    def publish_latency(self, topic, size, rate, seconds, batching):
        name, body, samples, count = self.topic(topic), os.urandom(size), [], int(rate * seconds)

        async def one(due):
            await self.stream.publish(name, body)
            samples.append(time.perf_counter() - due)

        async def go():
            started, tasks = time.perf_counter() + 0.05, []
            for i in range(count):
                due = started + i / rate
                await asyncio.sleep(max(0, due - time.perf_counter()))
                tasks.append(asyncio.create_task(one(due)))
            await asyncio.gather(*tasks)

        self.run(go())
        return percentiles(samples)

    def end_to_end(self, topic, size, rate, seconds):
        name, body, samples, count = self.topic(topic), os.urandom(size), [], int(rate * seconds)

        async def go():
            done = asyncio.Event()

            async def received(message):
                samples.append(time.perf_counter() - float(message.headers["t"]))
                await message.ack()
                if len(samples) == count:
                    done.set()

            await self.stream.subscribe(name, cb=received)
            started = time.perf_counter() + 0.05
            for i in range(count):
                due = started + i / rate
                await asyncio.sleep(max(0, due - time.perf_counter()))
                await self.stream.publish_async(name, body, headers={"t": repr(due)})
            await asyncio.wait_for(done.wait(), 60)

        self.run(go())
        return percentiles(samples)

    def close(self):
        self.run(self.connection.close())


client = {"pulsar": PulsarClient, "kafka": KafkaClient, "nats": NatsClient}[options.kind]()
n = lambda count: max(1000, int(count * options.scale))  # noqa: E731
t = lambda name: f"{name}-{RUN}"  # noqa: E731
benches = [
    ("publish_acked", 100, lambda: client.publish_each_acked(t("a"), 100, n(200_000), True)),
    ("publish_acked", 1024, lambda: client.publish_each_acked(t("b"), 1024, n(150_000), True)),
    ("publish_flushed", 100, lambda: client.publish_flushed(t("c"), 100, n(1_000_000))),
    ("publish_flushed", 1024, lambda: client.publish_flushed(t("d"), 1024, n(400_000))),
    ("publish_unbatched", 1024, lambda: client.publish_each_acked(t("e"), 1024, n(30_000), False)),
    ("consume", 100, lambda: client.consume(t("c"), 100, n(1_000_000), False)),
    ("consume_batch", 100, lambda: client.consume(t("c"), 100, n(1_000_000), True)),
    ("consume_batch", 1024, lambda: client.consume(t("d"), 1024, n(400_000), True)),
    ("send_one_at_a_time", 1024, lambda: client.one_at_a_time(t("f"), 1024, n(2_000))),
    (
        "publish_latency_1000_per_s",
        1024,
        lambda: client.publish_latency(t("g"), 1024, 1000, 8 * max(options.scale, 0.25), False),
    ),
    (
        "publish_latency_5000_per_s",
        1024,
        lambda: client.publish_latency(t("h"), 1024, 5000, 8 * max(options.scale, 0.25), True),
    ),
    ("end_to_end_1000_per_s", 1024, lambda: client.end_to_end(t("i"), 1024, 1000, 6 * max(options.scale, 0.25))),
]
wanted = set(filter(None, options.only.split(",")))
for bench, size, measure in benches:
    if (
        wanted
        and bench not in wanted
        and not (bench.startswith("publish_flushed") and wanted & {"consume", "consume_batch"})
    ):
        continue
    try:
        report(bench, size, **measure())
    except Exception as error:  # a failed bench is reported and the others go on
        report(bench, size, error=f"{type(error).__name__}: {error}")
client.close()
os._exit(0)
