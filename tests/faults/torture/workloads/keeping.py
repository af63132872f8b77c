"""Topics whose policies delete messages, or retain them; each has a subscription that gets everything in time.

- `retained` for a minute: readers find all messages that are younger. At the end all are deleted.
- `expiring`: nobody reads one of its subscriptions, whose messages expire.
- `evicted`: one subscription is read at the end only, and loses all but the last messages to the backlog quota.
- `held`, `refused`: a slow consumer has a backlog that reaches the quota now and then, so producers wait, or fail.
- `limited`: rates of publishing and dispatch that are just reached.
"""

from __future__ import annotations

from magnetar.admin.models import TopicPolicies
from magnetar.admin.policies import BacklogQuota, DispatchRate, PublishRate, Retention
from tests.faults.torture.consumers import async_consumer, consumer, cumulatively, some_each, some_each_async
from tests.faults.torture.keeping import late, looking_reader, slowly
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

RETAINED, EXPIRING, EVICTED, HELD, REFUSED, LIMITED = (
    "retained",
    "expiring",
    "evicted",
    "held",
    "refused",
    "limited",
)
_SINGLE = {"batching_enabled": False}
# A message of the loads has at most 300 bytes in its body, and with all its metadata, alone in an entry, this many.
_LARGEST_ENTRY = 700
_EVICTED_BYTES = 200_000
_LIGHT = Load(burst=25, pause_s=1.0)
_FEW = Load(burst=4, pause_s=1.0)
_QUOTA_BYTES = 15_000


# A slow consumer acknowledges all that there is.
_ALL = 2_000


def _quota(policy: str, limit: int) -> TopicPolicies:
    return TopicPolicies(backlog_quota_size=BacklogQuota(policy, limit_size_bytes=limit))


WORKLOAD = Workload(
    name="keeping",
    topics=(
        Topic(RETAINED, retains_all=False, policies=TopicPolicies(retention=Retention(time_minutes=1, size_mb=-1))),
        Topic(EXPIRING, retains_all=False, policies=TopicPolicies(message_ttl_seconds=25)),
        Topic(
            EVICTED,
            retains_all=False,
            policies=_quota("consumer_backlog_eviction", _EVICTED_BYTES),
            # An eviction leaves nine tenths of the quota.
            quota_messages=int(_EVICTED_BYTES * 0.8) // _LARGEST_ENTRY,
        ),
        Topic(HELD, retains_all=False, policies=_quota("producer_request_hold", _QUOTA_BYTES), holds_producers=True),
        # They are refused for as long.
        Topic(REFUSED, retains_all=False, policies=_quota("producer_exception", _QUOTA_BYTES), holds_producers=True),
        # It need not retain all: that would be read again as slowly at the end.
        Topic(
            LIMITED,
            retains_all=False,
            policies=TopicPolicies(
                publish_rate=PublishRate(messages_per_s=60), dispatch_rate=DispatchRate(messages=120)
            ),
        ),
    ),
    subscriptions=(
        Subscription(RETAINED, "all", "Shared"),
        Subscription(EXPIRING, "unread", "Shared"),
        Subscription(EXPIRING, "all", "Exclusive"),
        Subscription(EVICTED, "late", "Exclusive"),
        Subscription(EVICTED, "all", "Failover"),
        Subscription(HELD, "slow", "Exclusive"),
        Subscription(REFUSED, "slow", "Exclusive"),
        Subscription(LIMITED, "all", "Exclusive"),
    ),
    producers=(
        Worker(publisher(RETAINED, "batched", _LIGHT)),
        Worker(stock_publisher(RETAINED, "stock", _FEW)),
        Worker(publisher(EXPIRING, "batched", _LIGHT)),
        Worker(publisher(EVICTED, "batched", Load(burst=50))),
        Worker(publisher(EVICTED, "single", Load(burst=10, pause_s=1.0, options=_SINGLE))),
        Worker(publisher(HELD, "batched", _LIGHT)),
        # Not one of the stock library: its pauses between attempts to reopen grow up to a minute.
        Worker(publisher(HELD, "single", Load(burst=4, pause_s=1.0, options=_SINGLE))),
        Worker(publisher(REFUSED, "batched", _LIGHT)),
        Worker(publisher(LIMITED, "batched", Load(burst=50))),
    ),
    consumers=(
        Worker(async_consumer(RETAINED, "all", "Shared", "asyncio", some_each_async)),
        Worker(looking_reader(RETAINED, "looking"), processes=2),
        Worker(consumer(EXPIRING, "all", "Exclusive", "sync", cumulatively)),
        Worker(late(consumer(EVICTED, "late", "Exclusive", "late", cumulatively))),
        Worker(consumer(EVICTED, "all", "Failover", "all", some_each), processes=2),
        Worker(consumer(HELD, "slow", "Exclusive", "slow", slowly, most=_ALL)),
        Worker(consumer(REFUSED, "slow", "Exclusive", "slow", slowly, most=_ALL)),
        Worker(consumer(LIMITED, "all", "Exclusive", "all", cumulatively)),
    ),
)
