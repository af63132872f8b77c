"""What a seed makes of the brokers, of those who use them, and of what goes wrong.

Behind it stands the plan of the ledgers' world: bookies, quorums, network, disks. Some seeds are calm but for one nasty
thing, and some are storms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from magnetar import ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy, KeySharedMode
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.hashing import KEY_SHARED_SLOTS
from tests.sim.chance import Chance
from tests.sim.service.faults import SERVICE_FAULTS
from tests.sim.service.letters import DEAD_LETTERS
from tests.sim.world.odd_settings import with_odd
from tests.sim.world.plan import FAULTS, LOSSES, NOT_OF_TOPICS, Plan

__all__ = ["ConsumerPlan", "ProducerPlan", "ServicePlan", "TopicPlan", "service_plan"]

# Of messages that a producer sends at once, on average.
MEAN_BURST: Final = 4.5
_KINDS: Final = ("EXCLUSIVE", "EXCLUSIVE", "FAILOVER", "FAILOVER", "SHARED", "SHARED")
# The share of worlds with letters in which applications often die with one in flight.
_LETTER_FAULTS: Final = 0.6
# Minutes. 0: closed ledgers are deleted at once. Brokers' clocks are up to two minutes apart.
_RETENTION: Final = (0, 0, 0, 0.02, 1.0, 10_080)
# Of a retention policy; 0: there is none.
_RETENTION_POLICY: Final = (0, 0, 0, 0, 0, 0.02, 0.1)
# Entries between two snapshots of deduplication; 0: nothing is deduplicated.
_SNAPSHOT_EVERY: Final = (0, 0, 3, 20, 1_000)
_ODD_BROKER: Final[dict[str, tuple[Any, ...]]] = {
    "managed_ledger_cache_size_mb": (0,),
    "managed_ledger_max_pending_bytes": (10_000, 100_000),
    "managed_ledger_read_ahead_readers": (1,),
    "managed_ledger_cursor_max_entries_per_ledger": (2, 5),
    "managed_ledger_cursor_idle_time_seconds": (0.5, 3.0),
    "managed_ledger_default_mark_delete_rate_limit": (0.2, 50.0),
    "max_pending_publish_bytes_per_topic": (1_500,),
    "max_pending_publish_bytes_per_connection": (1_500,),
    "max_waiting_publish_answers": (1, 5),
    "max_concurrent_topic_load_request": (1,),
    "max_unacked_messages_per_consumer": (2, 10),
    "max_unacked_messages_per_subscription": (3, 20),
    "max_consumers_per_subscription": (1,),
    "dispatcher_max_read_batch_size": (1, 3),
    "dispatcher_max_read_size_bytes": (200,),
    "dispatcher_max_round_robin_batch_size": (1, 3),
    "max_queued_bytes_per_stream": (1_500,),
    "max_waiting_answers_per_stream": (1, 5),
    "unload_idle_topics_after_seconds": (1.0, 4.0),
    "topic_close_timeout_seconds": (0.1,),
    "topic_load_timeout_seconds": (1.0,),
    "slow_topic_load_seconds": (0.3, 2.0),
    "metadata_cache_ttl_seconds": (0.0,),
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    # 0: it has none.
    partitions: int
    # Their names and what type of consumers each has.
    subscriptions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    topic: TopicPlan
    # Empty: the broker makes one.
    name: str
    options: dict[str, Any]
    keyed: bool
    # Of the pauses that all producers would make to have something to send all the time.
    pause_share: float
    longest_filling: int
    # It opens its topic exclusively, as all producers of the topic do, in another mode each time.
    is_exclusive: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    topic: TopicPlan
    subscription: str
    # READER, besides the subscriptions' types.
    kind: str
    options: dict[str, Any]
    # What becomes of a message, in shares.
    cumulative: float
    receipts: float
    refuses: float
    keeps: float
    seeks: float
    cancels: float
    longest_pause_s: float
    # By `reconsume_later`.
    retries: float = 0.0


@dataclass(slots=True)
class ServicePlan:
    brokers: int
    topics: list[TopicPlan]
    # Of each application: its work, in all its runs.
    applications: list[list[ProducerPlan | ConsumerPlan]]
    messages: int
    # How many read plans past the brokers.
    plan_readers: int
    # Between two bursts of a producer, so that the messages last as long as the faults.
    pause_s: float
    # Ownership is only a hint: it may be wrong.
    everybody_owns: bool
    session_timeout_s: float
    options: BrokerServiceSettings = field(repr=False)
    # The first broker and the first bookie are one process, as in a standalone, and adds go there by calls.
    in_one_process: bool = False
    # The subscriptions whose consumers have retry and dead letter topics, by topic and name: how often a message is
    # redelivered before.
    letters: dict[tuple[str, str], int] = field(default_factory=dict)

    def fill_up(self) -> None:
        """Have all producers send large messages, with short pauses."""
        for works in self.applications:
            works[:] = [
                replace(work, longest_filling=2_000, pause_share=0.1) if isinstance(work, ProducerPlan) else work
                for work in works
            ]


def service_plan(chance: Chance, plan: Plan) -> ServicePlan:
    """Change the other plan, too: other faults are injected."""
    draw = chance.stream("service")
    by_key = chance.stream("by key")
    topics = [_topic(draw, by_key, f"t{number}") for number in range(draw.choice((1, 1, 2, 3)))]
    applications: list[list[ProducerPlan | ConsumerPlan]] = [[] for _ in range(draw.choice((2, 2, 3, 4)))]
    number = 0
    for topic in topics:
        for _ in range(draw.choice((1, 1, 2, 3))):
            applications[number % len(applications)].append(_producer(draw, topic, number))
            number += 1
        for subscription, kind in topic.subscriptions:
            consumers = draw.choice((1, 1, 2, 3) if kind != "EXCLUSIVE" else (1, 1, 1, 2))
            policies: list[dict[str, Any]] = [{}] * consumers
            if kind == "KEY_SHARED":
                consumers += by_key.choice((1, 1, 2))
                policies = _key_shared_policies(chance.stream("key ranges"), consumers)
            for policy in policies:
                consumer = _consumer(draw, topic, subscription, kind)
                applications[number % len(applications)].append(replace(consumer, options=consumer.options | policy))
                number += 1
        if draw.random() < 0.3:
            applications[number % len(applications)].append(_consumer(draw, topic, "", "READER"))
            number += 1
    _reserve_topics(chance.stream("exclusive"), topics, applications)
    _publish_by_key(by_key, applications)
    letters = _have_letters(chance.stream("letters"), topics, applications)
    _draw_faults(draw, plan)
    if letters and chance.stream("faults of letters").random() < _LETTER_FAULTS:
        plan.faults.append("kill with a letter in flight")
    plan.active_s = draw.choice((4.0, 7.0, 12.0))
    # What is deleted goes soon: the end waits for it.
    bookie: dict[str, object] = {"garbage_interval_seconds": 1.5}
    if not any(fault in LOSSES for fault in plan.faults):
        bookie["scrub_interval_seconds"] = 600.0
    plan.bookie = BookieServerSettings(**{**plan.bookie.model_dump(), **bookie})
    messages = draw.choice((50, 100, 200))
    producers = sum(isinstance(work, ProducerPlan) for works in applications for work in works)
    return ServicePlan(
        brokers=draw.choice((1, 2, 2, 3)),
        topics=topics,
        applications=applications,
        messages=messages,
        plan_readers=chance.stream("plan readers").choice((0, 1, 1, 2)),
        pause_s=plan.active_s * producers * MEAN_BURST / messages,
        everybody_owns=draw.random() < 0.15,
        session_timeout_s=draw.choice((2.5, 4.0, 4.0, 8.0)),
        options=_options(draw, plan).model_copy(
            update={
                "default_retention_without_subscription_minutes": chance.stream("retention").choice(_RETENTION),
                "default_retention_time_in_minutes": (
                    minutes := chance.stream("retention policy").choice(_RETENTION_POLICY)
                ),
                "default_retention_size_in_mb": -1 if minutes else 0,
                "subscription_key_shared_use_consistent_hashing": chance.stream("hash ring").random() < 0.4,
                "broker_deduplication_enabled": (every := chance.stream("deduplication").choice(_SNAPSHOT_EVERY)) > 0,
                "broker_deduplication_entries_interval": every or 1_000,
                "broker_deduplication_snapshot_frequency_in_seconds": 1,
                "broker_deduplication_snapshot_interval_seconds": 2,
            }
        ),
        in_one_process=chance.stream("one process").random() < 0.35,
        letters=letters,
    )


def _reserve_topics(
    draw: SeededRandomness, topics: list[TopicPlan], applications: list[list[ProducerPlan | ConsumerPlan]]
) -> None:
    """Have all producers of some topics be exclusive ones."""
    reserved = {topic for topic in topics if draw.random() < 0.2}
    for works in applications:
        works[:] = [
            replace(work, is_exclusive=True) if isinstance(work, ProducerPlan) and work.topic in reserved else work
            for work in works
        ]


def _publish_by_key(draw: SeededRandomness, applications: list[list[ProducerPlan | ConsumerPlan]]) -> None:
    """Have producers of topics with a Key_Shared subscription set keys, mostly on single messages, and their consumers
    nack more.
    """
    for works in applications:
        for at, work in enumerate(works):
            if isinstance(work, ConsumerPlan):
                if work.kind == "KEY_SHARED":
                    works[at] = replace(work, refuses=draw.choice((0.0, 0.1, 0.3)))
            elif "KEY_SHARED" in dict(work.topic.subscriptions).values():
                batching = work.options["batching_enabled"] and draw.random() < 0.3
                works[at] = replace(
                    work, keyed=draw.random() < 0.8, options={**work.options, "batching_enabled": batching}
                )


def _have_letters(
    draw: SeededRandomness, topics: list[TopicPlan], applications: list[list[ProducerPlan | ConsumerPlan]]
) -> dict[tuple[str, str], int]:
    """Have the consumers of some subscriptions nack and retry more, with retry and dead letter topics."""
    letters = {
        (topic.name, name): draw.choice((1, 1, 2))
        for topic in topics
        for name, kind in topic.subscriptions
        if kind in ("SHARED", "KEY_SHARED") and draw.random() < 0.5
    }
    for works in applications:
        for at, work in enumerate(works):
            most = letters.get((work.topic.name, work.subscription)) if isinstance(work, ConsumerPlan) else None
            if isinstance(work, ConsumerPlan) and most is not None:
                options = {
                    **work.options,
                    "dead_letter_policy": ConsumerDeadLetterPolicy(most, initial_subscription_name=DEAD_LETTERS),
                    "enable_retry": True,
                    # The retry letter topic is another one to receive from.
                    "receiver_queue_size": max(work.options["receiver_queue_size"], 1),
                    "negative_ack_redelivery_delay_ms": draw.choice((0, 100)),
                }
                works[at] = replace(work, options=options, refuses=0.2, retries=0.15, seeks=0.0)
    return letters


def _draw_faults(draw: SeededRandomness, plan: Plan) -> None:
    of_ledgers = [fault for fault in FAULTS if fault not in NOT_OF_TOPICS and (plan.losers or fault not in LOSSES)]
    weighted = [fault for fault in of_ledgers for _ in range(FAULTS[fault])]
    weighted += [fault for fault, weight in SERVICE_FAULTS.items() for _ in range(weight)]
    kind = draw.choice(("calm", "calm", "calm", "mixed", "mixed", "storm"))
    if kind == "calm":
        plan.faults = [draw.choice(list(SERVICE_FAULTS))]
        if draw.random() < 0.5:
            plan.faults.append(draw.choice(weighted))
        plan.fault_interval_s = 0.3 + 1.2 * draw.random()
    elif kind == "mixed":
        plan.faults = [draw.choice(weighted) for _ in range(5)]
        plan.fault_interval_s = 0.4 + 1.5 * draw.random()
    else:
        plan.faults = [*of_ledgers, *SERVICE_FAULTS, *SERVICE_FAULTS]
        plan.fault_interval_s = 0.3 + 0.7 * draw.random()
    plan.kind = kind


def _topic(draw: SeededRandomness, by_key: SeededRandomness, name: str) -> TopicPlan:
    kinds = [draw.choice(_KINDS) for _ in range(draw.choice((0, 1, 1, 1, 2, 2)))]
    kinds = ["KEY_SHARED" if kind == "SHARED" and by_key.random() < 0.6 else kind for kind in kinds]
    subscriptions = tuple((f"s{number}", kind) for number, kind in enumerate(kinds))
    return TopicPlan(name, draw.choice((0, 0, 0, 2)), subscriptions)


def _key_shared_policies(draw: SeededRandomness, consumers: int) -> list[dict[str, Any]]:
    """Return what each consumer of a subscription requests: mostly nothing, else equal ranges of slots."""
    if draw.random() < 0.7:
        return [{}] * consumers
    ends = [number * KEY_SHARED_SLOTS // consumers for number in range(consumers + 1)]
    return [
        {"key_shared_policy": ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(first, end - 1)])}
        for first, end in pairwise(ends)
    ]


def _producer(draw: SeededRandomness, topic: TopicPlan, number: int) -> ProducerPlan:
    batching = draw.random() < 0.6
    options: dict[str, Any] = {
        "batching_enabled": batching,
        "send_timeout_millis": draw.choice((0, 3_000, 30_000)),
        "max_pending_messages": draw.choice((3, 1_000, 1_000)),
        "block_if_queue_full": draw.random() < 0.7,
        "auto_update_partitions_interval_seconds": 1.0,
        "lazy_start_partitioned_producers": draw.random() < 0.3,
    }
    if batching:
        options["batching_max_messages"] = draw.choice((2, 5, 1_000))
        options["batching_max_publish_delay_ms"] = draw.choice((1, 10, 60))
    name = f"named{number}" if draw.random() < 0.4 else ""
    filling = draw.choice((30, 30, 30, 2_000))
    return ProducerPlan(topic, name, options, draw.random() < 0.5, draw.choice((0.1, 1.0, 1.0, 2.0)), filling)


def _consumer(draw: SeededRandomness, topic: TopicPlan, subscription: str, kind: str) -> ConsumerPlan:
    # 0: one at a time, on request; not of several partitions.
    least = 1 if topic.partitions else 0
    options: dict[str, Any] = {"receiver_queue_size": draw.choice((least, 1, 3, 20, 1_000))}
    if kind != "READER":
        options["ack_grouping_time_ms"] = draw.choice((0, 20, 100))
        options["ack_grouping_max_size"] = draw.choice((3, 1_000))
        options["negative_ack_redelivery_delay_ms"] = draw.choice((0, 100, 1_000))
        options["batch_index_ack_enabled"] = draw.random() < 0.8
        options["auto_update_partitions_interval_seconds"] = 1.0
        if kind == "FAILOVER" and draw.random() < 0.5:
            options["priority_level"] = draw.below(2)
    return ConsumerPlan(
        topic=topic,
        subscription=subscription,
        kind=kind,
        options=options,
        cumulative=0.0 if kind in ("SHARED", "KEY_SHARED") else draw.choice((0.0, 0.3, 1.0)),
        receipts=draw.choice((0.0, 0.3, 1.0)),
        refuses=draw.choice((0.0, 0.0, 0.1)),
        keeps=draw.choice((0.0, 0.1, 0.3)),
        seeks=draw.choice((0.0, 0.0, 0.03)),
        cancels=draw.choice((0.0, 0.2)),
        longest_pause_s=draw.choice((0.0, 0.01, 0.1)),
    )


def _options(draw: SeededRandomness, plan: Plan) -> BrokerServiceSettings:
    striping = plan.striping
    options = BrokerServiceSettings(
        managed_ledger_default_ensemble_size=striping.ensemble_size,
        managed_ledger_default_write_quorum=striping.write_quorum,
        managed_ledger_default_ack_quorum=striping.ack_quorum,
        managed_ledger_max_entries_per_ledger=draw.choice((2, 5, 20, 1_000)),
        managed_ledger_min_ledger_rollover_time_minutes=0,
        managed_ledger_max_ledger_rollover_time_minutes=draw.choice((0.02, 0.2, 10.0)),
        managed_ledger_lease_sweep_interval_seconds=1.0,
        managed_ledger_default_mark_delete_rate_limit=draw.choice((1.0, 5.0)),
        managed_ledger_cursor_max_entries_per_ledger=draw.choice((4, 20, 50_000)),
        metadata_retry_seconds=0.5,
        metadata_cache_ttl_seconds=1.0,
        metadata_operation_timeout_seconds=3.0,
        topic_load_timeout_seconds=8.0,
        topic_close_timeout_seconds=2.0,
        broker_shutdown_timeout_seconds=4.0,
        bundle_claim_timeout_seconds=0.7,
        bundle_wait_timeout_seconds=4.0,
        bundle_check_interval_seconds=2.0,
        default_number_of_namespace_bundles=draw.choice((1, 2, 4, 4)),
        topic_housekeeping_interval_seconds=0.5,
        topic_visit_interval_minutes=0.02,
    )
    return with_odd(options, _ODD_BROKER, draw)
