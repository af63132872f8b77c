"""What a seed makes of its run: how many bookies, which quorums, who works, and what goes wrong how often.

Some seeds are calm but for one nasty thing, and some are storms: in a storm much is hidden by what else goes wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_testing.randomness import SeededRandomness
from tests.sim.chance import Chance
from tests.sim.network import NetworkOptions
from tests.sim.world.odd_settings import ODD_AUTO_RECOVERY, ODD_BOOKIE, ODD_CLIENT, with_odd

__all__ = ["FAULTS", "LOSSES", "NOT_OF_TOPICS", "Plan", "fill_up", "plan"]

_STRIPINGS = (
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (2, 2, 2),
    (3, 2, 2),
    (3, 2, 2),
    (5, 3, 2),
    (4, 3, 2),
    (3, 3, 3),
    (3, 3, 3),
    (5, 5, 3),
    (2, 2, 1),
    (1, 1, 1),
)

# Every kind of fault, and how much of it there is among the others.
FAULTS = {
    "kill bookie": 10,
    "kill client": 10,
    "stop bookie": 5,
    "kill all": 1,
    "pause bookie": 5,
    "pause client": 6,
    "cut pair": 6,
    "cut one way": 5,
    "isolate bookie": 5,
    "isolate client": 4,
    "suspend metadata": 4,
    "expire session": 4,
    "expire session untold": 4,
    "lose metadata request": 3,
    "lose metadata answer": 4,
    "hold metadata request": 4,
    "slow metadata": 3,
    "metadata lags": 4,
    "cut metadata silently": 3,
    "strike a change": 12,
    "forget a ledger": 4,
    "fail sync": 4,
    "slow disk": 4,
    "stuttering disk": 2,
    "stalled disks": 4,
    "full disk": 5,
    "bad network": 5,
    "bit flip": 4,
    "lossy restart": 6,
    "wipe": 1,
    "recover a ledger": 8,
    "ambush": 14,
    "fight over the end": 6,
    "zombie writer": 5,
    "lose who acknowledged": 12,
    "delete a ledger": 6,
    "delete under a recovery": 4,
    "read-only": 4,
    "decommission": 2,
    "decommission the dead": 2,
}
# Of those: the faults of writers of chains, and those that no topic survives.
NOT_OF_TOPICS = (
    "strike a change",
    "recover a ledger",
    "ambush",
    "fight over the end",
    "zombie writer",
    "delete a ledger",
    "delete under a recovery",
    "forget a ledger",
    "decommission",
    "decommission the dead",
    "wipe",
    "read-only",
)
# Those which take data from a bookie: only those bookies may suffer them that an entry can do without.
LOSSES = ("bit flip", "lossy restart", "wipe")
# Those which take a bookie out of the cluster.
DEPARTURES = ("decommission", "decommission the dead")


_OFTEN_S = 0.6
_CLIENT = LedgerClientSettings(
    add_entry_timeout_seconds=1.0,
    read_entry_timeout_seconds=1.0,
    speculative_read_timeout_ms=200,
    explicit_lac_interval_ms=100,
    max_pending_entries=24,
    bookie_quarantine_time_seconds=2.0,
    recovery_timeout_seconds=5.0,
    recovery_window_entries=8,
    read_ahead_entries=8,
    long_poll_timeout_ms=1000,
)
_BOOKIE = BookieServerSettings(
    garbage_interval_seconds=8.0,
    metadata_retry_seconds=0.5,
    disk_check_interval_seconds=1.0,
    scrub_interval_seconds=7.0,
)
_AUTO_RECOVERY = AutoRecoverySettings(
    lost_bookie_recovery_delay_seconds=5.0,
    open_ledger_rereplication_grace_period_seconds=4.0,
    auditor_scan_interval_seconds=6.0,
    auditor_periodic_check_interval_seconds=20.0,
    auditor_check_pause_seconds=0.05,
    intent_grace_period_seconds=6.0,
    rw_rereplicate_backoff_seconds=0.5,
    rw_rereplicate_backoff_max_seconds=4.0,
    rereplication_entry_batch_size=4,
    inventory_timeout_seconds=2.0,
    metadata_retry_seconds=0.5,
)


@dataclass(slots=True)
class Plan:
    striping: Striping
    bookies: int
    writers: int
    readers: int
    chains: int
    entries: int
    active_s: float
    kind: str
    # How often a fault is injected, and which ones are.
    fault_interval_s: float
    faults: list[str]
    # Numbers of bookies that may lose data.
    losers: list[int]
    network: NetworkOptions
    session_timeout_s: float = 4.0
    roll_entries: int = 20
    uneven_disks: bool = False
    # What a payload is filled up with is below.
    filling_bytes: int = 40
    # Of the owners: who takes about as long to claim a ledger as the sweeper leaves.
    slow_claims: float = 0.05
    client: LedgerClientSettings = field(default_factory=lambda: _CLIENT, repr=False)
    bookie: BookieServerSettings = field(default_factory=lambda: _BOOKIE, repr=False)
    auto_recovery: AutoRecoverySettings = field(default_factory=lambda: _AUTO_RECOVERY, repr=False)


def plan(chance: Chance, only: Sequence[str] = ()) -> Plan:
    """With `only`, only these faults, and often; of those only what the existing bookies can bear."""
    draw = chance.stream("plan")
    striping = Striping(*draw.choice(_STRIPINGS))
    spare = draw.choice((0, 1, 1, 2, 2))
    bookies = max(3, min(6, striping.ensemble_size + spare))
    losers = list(range(bookies))
    draw.shuffle(losers)
    losers = losers[: striping.ack_quorum - 1]
    kind = draw.choice(("calm", "calm", "calm", "mixed", "mixed", "storm", "ambushes"))
    if kind == "storm":
        faults, interval_s = list(FAULTS), 0.3 + draw.random()
    elif kind == "ambushes":
        faults, interval_s = ["ambush"], 0.3 + 0.5 * draw.random()
    elif kind == "mixed":
        faults, interval_s = _some(draw, 5), 0.7 + 2 * draw.random()
    else:
        faults, interval_s = _some(draw, draw.choice((1, 1, 2))), 1.0 + 4 * draw.random()
        if draw.random() < 0.3:
            # All that writers do to each other is to fight.
            faults.append("recover a ledger")
        if draw.random() < 0.4:
            faults.append("ambush")
    if only:
        faults, interval_s = list(only), _OFTEN_S
    if bookies < striping.ensemble_size + 1:
        faults = [fault for fault in faults if fault not in ("wipe", *DEPARTURES)]
    if not losers:
        faults = [fault for fault in faults if fault not in LOSSES]
    if "wipe" in faults and bookies < striping.ensemble_size + 2:
        faults = [fault for fault in faults if fault not in DEPARTURES]
    if "forget a ledger" in faults and any(fault in faults for fault in DEPARTURES):
        # The scan that finds no ledger on a bookie must see those that there are.
        left_out = draw.choice((("forget a ledger",), DEPARTURES))
        faults = [fault for fault in faults if fault not in left_out]
    network = NetworkOptions(delay_s=0.0005 * (1 + 3 * draw.random()), keep_alive_s=2.0)
    if draw.random() < 0.4:
        network.long_share, network.long_delay_s = 0.02, 0.2 + draw.random()
    if draw.random() < 0.4:
        network.duplicate_share = 0.05
    if kind != "calm" and draw.random() < 0.5:
        network.loss_share = 0.002
    odd = chance.stream("odd options")
    auto_recovery = with_odd(_AUTO_RECOVERY, ODD_AUTO_RECOVERY, odd)
    slow_claims = odd.choice((0.0, 0.05, 0.05, 0.4))
    if slow_claims > 0.1:
        # Then the sweeper had better not be slow.
        auto_recovery = AutoRecoverySettings(**{**auto_recovery.model_dump(), "intent_grace_period_seconds": 0.5})
    if odd.random() < 0.5:
        # What rots after it was found whole is the scrubber's to find.
        changed = {"auditor_periodic_check_interval_seconds": 604_800.0}
        auto_recovery = AutoRecoverySettings(**{**auto_recovery.model_dump(), **changed})
    client = with_odd(_CLIENT, ODD_CLIENT, odd)
    if odd.random() < 0.5:
        # So that the writer is before auto-recovery, which takes the ledger from it.
        client = LedgerClientSettings(**{**client.model_dump(), "lost_bookie_replacement_delay_seconds": 2.0})
    return Plan(
        striping=striping,
        bookies=bookies,
        writers=draw.choice((1, 2, 2, 3)),
        readers=draw.choice((0, 1, 1, 2)),
        chains=draw.choice((1, 1, 2)),
        entries=draw.choice((60, 120, 200)),
        active_s=draw.choice((10.0, 18.0, 30.0)),
        kind=kind,
        fault_interval_s=interval_s,
        faults=faults,
        losers=losers,
        network=network,
        uneven_disks=draw.random() < 0.4,
        roll_entries=draw.choice((6, 15, 30, 1000)),
        filling_bytes=odd.choice((40, 40, 40, 2000)),
        client=client,
        bookie=with_odd(_BOOKIE, ODD_BOOKIE, odd),
        auto_recovery=auto_recovery,
        slow_claims=slow_claims,
    )


def fill_up(plan: Plan, draw: SeededRandomness) -> bool:
    """Where all disks stall together, writers have more in flight in most runs than a bookie may lag by, and entries
    are large. Whether that is so here."""
    fills_up = "stalled disks" in plan.faults and draw.random() < 0.7
    if fills_up:
        plan.client = plan.client.model_copy(update={"max_bookie_lag_bytes": draw.choice((4_000, 12_000))})
        plan.filling_bytes = 2000
    return fills_up


def _some(draw: SeededRandomness, count: int) -> list[str]:
    """Choose this many kinds of fault, the frequent ones more often."""
    weighted = [name for name, weight in FAULTS.items() for _ in range(weight)]
    return [draw.choice(weighted) for _ in range(count)]
