"""Who may import whom: read from the sources, without running them.

    magnetar_protos ← magnetar_wire ← magnetar_metadata ← magnetar_bookie ← magnetar_broker
    magnetar (the SDK) knows the first two alone; magnetar_broker may use it; magnetar_spark knows the SDK and
    magnetar_bookie.read, which itself knows the first two alone. magnetar_cli knows all of these, and magnetar_testing
    magnetar_cli too: nothing that runs in production imports magnetar_testing.

The modules in `RULES` do no I/O: neither they nor anything of ours that they import, however indirectly, imports a
module that does. The same holds for the modules of magnetar_wire, except the few that implement an interface.

Some packages stand beside each other and don't import each other, not even for the type checker: `APART`. The folders
and single modules of the SDK and of the broker are in layers, and import only what is in layers before theirs, not even
for the type checker anything else: `LAYERS`.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_WIRE: Final = frozenset({"magnetar_protos", "magnetar_wire"})
_STORAGE: Final = _WIRE | {"magnetar_metadata", "magnetar_bookie"}
MAY_IMPORT: Final[dict[str, frozenset[str] | None]] = {
    "magnetar_protos": frozenset(),
    "magnetar_wire": frozenset({"magnetar_protos"}),
    "magnetar_metadata": _WIRE,
    "magnetar_bookie": _WIRE | {"magnetar_metadata"},
    "magnetar_bookie.read": _WIRE,
    "magnetar_broker": _STORAGE | {"magnetar"},
    "magnetar": _WIRE,
    "magnetar_spark": _WIRE | {"magnetar", "magnetar_bookie.read"},
    "pyspark_magnetar": frozenset({"magnetar_spark"}),
    "magnetar_cli": _STORAGE | {"magnetar_broker", "magnetar", "magnetar_spark", "pyspark_magnetar"},
    "magnetar_testing": None,  # None: everything
}
NOT_IN_RULES: Final = frozenset({"asyncio", "grpc", "rocksdict", "kazoo", "time", "random", "socket"})
# Modules that hold rules, each beside the code that uses it.
RULES: Final = frozenset(
    {
        "magnetar._acknowledging.ack_timeout_wheel",
        "magnetar._producing.batch",
        "magnetar._prefetching.chunk_assembly",
        "magnetar._producing.chunks_in_flight",
        "magnetar._letters.held_letters",
        "magnetar._producing.in_flight",
        "magnetar._letters.letter_rules",
        "magnetar._producing.outgoing_message",
        "magnetar._acknowledging.pending_acks",
        "magnetar._prefetching.permits",
        "magnetar._acknowledging.redelivery_backoff",
        "magnetar._patterns.topic_pattern",
        "magnetar._acknowledging.unacked_chunks",
        "magnetar_bookie.auto_recovery.auditor_rules",
        "magnetar_bookie.auto_recovery.ledger_repair_rules",
        "magnetar_bookie.auto_recovery.lost_bookies",
        "magnetar_bookie.ledger.add_rules",
        "magnetar_bookie.ledger.ensemble_rules",
        "magnetar_bookie.ledger.ledger_metadata",
        "magnetar_bookie.ledger.recovery_rules",
        "magnetar_bookie.ledger.unanswered_adds",
        "magnetar_bookie.server.cookie_validation_rules",
        "magnetar_bookie.server.counters",
        "magnetar_bookie.server.group_commit_rules",
        "magnetar_bookie.server.ledger_rules",
        "magnetar_bookie.server.replica_cache",
        "magnetar_bookie.server.scrubber_rules",
        "magnetar_bookie.storage.rocksdb.compaction_rules",
        "magnetar_broker.catalog.policies",
        "magnetar_broker.concurrency_limit",
        "magnetar_broker.counters",
        "magnetar_broker.cursors.ack_state",
        "magnetar_broker.cursors.cursor_record",
        "magnetar_broker.cursors.entry_set",
        "magnetar_broker.cursors.subscription_limits",
        "magnetar_broker.managed_ledger.append_queue",
        "magnetar_broker.managed_ledger.entry_search",
        "magnetar_broker.managed_ledger.lease_rules",
        "magnetar_broker.managed_ledger.ledger_backoff",
        "magnetar_broker.managed_ledger.ledger_ends",
        "magnetar_broker.managed_ledger.ledger_list",
        "magnetar_broker.managed_ledger.log_entry",
        "magnetar_broker.managed_ledger.lost_entry_facts",
        "magnetar_broker.managed_ledger.message_position",
        "magnetar_broker.position",
        "magnetar_broker.managed_ledger.read_plan",
        "magnetar_broker.managed_ledger.chunk_lookback",
        "magnetar_broker.managed_ledger.ledger_lifetime_rules",
        "magnetar_broker.ownership.bundle_map",
        "magnetar_broker.ownership.load_rules",
        "magnetar_broker.ownership.namespace_bundles",
        "magnetar_broker.schemas.avro_definitions",
        "magnetar_broker.schemas.avro_equality",
        "magnetar_broker.schemas.avro_resolution",
        "magnetar_broker.schemas.bounded_json",
        "magnetar_broker.schemas.compatibility",
        "magnetar_broker.schemas.definitions",
        "magnetar_broker.schemas.key_value_definitions",
        "magnetar_broker.schemas.protobuf_definitions",
        "magnetar_broker.schemas.schema_rules",
        "magnetar_broker.schemas.work_budget",
        "magnetar_broker.server.grpc.produce_answers",
        "magnetar_broker.server.grpc.stream_budget",
        "magnetar_broker.server.pulsar.acknowledged_ids",
        "magnetar_broker.server.pulsar.error_codes",
        "magnetar_broker.server.pulsar.frames",
        "magnetar_broker.server.pulsar.incomplete_frames",
        "magnetar_broker.server.pulsar.message_ids",
        "magnetar_broker.server.pulsar.replies",
        "magnetar_broker.server.topic_list_rules",
        "magnetar_broker.system_topics",
        "magnetar_broker.topic_policies.policy_events",
        "magnetar_broker.topic_properties",
        "magnetar_broker.topics.backlog_quota_rules",
        "magnetar_broker.topics.deduplication.partial_batch",
        "magnetar_broker.topics.deduplication.rules",
        "magnetar_broker.topics.deduplication.snapshots",
        "magnetar_broker.topics.consumer_limits",
        "magnetar_broker.topics.dispatch.base_consumer",
        "magnetar_broker.topics.dispatch.chunk_owners",
        "magnetar_broker.topics.dispatch.delivery_capacity",
        "magnetar_broker.topics.dispatch.dispatch_rule",
        "magnetar_broker.topics.dispatch.entry_counts",
        "magnetar_broker.topics.dispatch.exclusive_and_failover",
        "magnetar_broker.topics.dispatch.held_keys",
        "magnetar_broker.topics.dispatch.individual_delivery",
        "magnetar_broker.topics.dispatch.key_order",
        "magnetar_broker.topics.dispatch.key_selectors",
        "magnetar_broker.topics.dispatch.key_shared",
        "magnetar_broker.topics.dispatch.key_shared_policy",
        "magnetar_broker.topics.dispatch.key_shared_reasons",
        "magnetar_broker.topics.dispatch.key_shared_stats",
        "magnetar_broker.topics.dispatch.position_set",
        "magnetar_broker.topics.dispatch.redelivery_counts",
        "magnetar_broker.topics.dispatch.shared",
        "magnetar_broker.topics.dispatch.shortages",
        "magnetar_broker.topics.dispatch.subscription_types",
        "magnetar_broker.topics.dispatch.waiting_keys",
        "magnetar_broker.topics.entry_check",
        "magnetar_broker.topics.producer_access_rules",
        "magnetar_broker.topics.producer_names",
        "magnetar_broker.topics.subscribe_counts",
        "magnetar_broker.topics.subscribe_refusals",
        "magnetar_broker.topics.token_bucket",
        "magnetar_broker.topics.topic_load_slots",
        "magnetar_broker.topics.topics_by_hash",
        "magnetar_metadata.envelope",
        "magnetar_metadata.node_table",
        "magnetar_metadata.paths",
        "magnetar_metadata.transaction_check",
        "magnetar_metadata.tree",
        "magnetar_metadata.zookeeper.multi_plan",
    }
)
APART: Final = (("magnetar_broker.server.grpc", "magnetar_broker.server.pulsar"),)
LAYERS: Final = {
    "magnetar": (
        ("_enums", "_public_object", "exceptions"),
        ("_errors", "_loggers", "_threads", "_unsupported", "schema"),
        ("_message", "_options"),
        ("_connections",),
        ("_client_core", "admin"),
        ("_patterns", "_values"),
        ("_prefetching", "_producing"),
        ("_acknowledging",),
        ("_letters",),
        ("_consuming",),
        ("_interceptors", "_listeners", "_table_contents"),
        ("_consumer", "_producer"),
        ("_intercepted_consumer", "_intercepted_producer", "_reader", "_table_view", "_typed_producer"),
        ("_client", "aio"),
        ("asyncio",),
    ),
    "magnetar_broker": (
        (
            "client_streams",
            "concurrency_limit",
            "counters",
            "name_locks",
            "paths",
            "position",
            "session_end",
            "system_topics",
        ),
        ("errors",),
        ("begun_changes", "owned_tasks", "peers", "settings", "single_flight", "topic_properties"),
        ("managed_ledger",),
        ("catalog", "cursors"),
        ("schemas",),
        ("ownership",),
        ("topics",),
        ("topic_policies",),
        ("admin",),
        ("broker_session",),
        ("server",),
        ("broker",),
        ("http",),
        ("daemon",),
    ),
}
# The modules and packages of magnetar_wire that do I/O; only shells may import them.
WIRE_SHELLS: Final = frozenset(
    f"magnetar_wire.{name}"
    for name in (
        "clock",
        "configuration",
        "grpc_transport",
        "in_process_transport",
        "pipe",
        "process",
        "randomness",
        "tasks",
    )
)


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    # What it imports when it runs, and what it imports for the type checker besides.
    imports: frozenset[str]
    all_imports: frozenset[str]


def source_roots(project: Path) -> list[str]:
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    return list(settings["tool"]["hatch"]["build"]["dev-mode-dirs"])


def modules(project: Path, roots: list[str]) -> dict[str, Module]:
    found = {}
    for root in roots:
        for path in sorted((project / root).glob("*/**/*.py")):
            parts = path.relative_to(project / root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            tree = ast.parse(path.read_text())
            all_imports = frozenset(_imports(tree, name, with_types=True))
            found[name] = Module(name, path, frozenset(_imports(tree, name, with_types=False)), all_imports)
    return found


def _imports(tree: ast.AST, name: str, *, with_types: bool) -> Iterator[str]:
    """Yield all modules that the file imports. `with_types`: also imports for the type checker."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not with_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: made absolute
                package = name.split(".")[: -node.level] or [name]
                base = ".".join([*package, base]).strip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        yield from _imports(node, name, with_types=with_types)


def violations(project: Path, roots: list[str]) -> list[str]:
    known = modules(project, roots)
    found = []
    for module in known.values():
        package = module.name.split(".")[0]
        if package not in MAY_IMPORT:
            found.append(f"{module.name}: the package {package} is not in the table of who may import whom")
            continue
        found += _package_violations(module, _rule(module.name))
        if _is_pure(module.name):
            reached = _reached(module, known)
            found += [f"{module.name} reaches {name} through {via}" for name, via in sorted(reached.items())]
    found += [line for pair in APART for line in _imports_of_each_other(pair, known)]
    return found + [line for module in known.values() for line in _layer_violations(module)]


def _layer_violations(module: Module) -> list[str]:
    package = module.name.split(".")[0]
    own = _folder_in(package, module.name)
    if package not in LAYERS or own is None:
        return []
    layers = {folder: number for number, folders in enumerate(LAYERS[package]) for folder in folders}
    if own not in layers:
        return [f"{module.name}: {own} is in no layer of {package}"]
    found = []
    for imported in sorted(module.all_imports):
        other = _folder_in(package, imported)
        if other not in (None, own) and layers.get(other, 0) >= layers[own]:
            found.append(f"{module.name} imports {imported}: its layer is not below that of {own}")
    return found


def _folder_in(package: str, name: str) -> str | None:
    """Return the folder or single module of the package that this name is in; None: it is in none."""
    parts = name.split(".")
    return parts[1] if parts[0] == package and len(parts) > 1 else None


def _imports_of_each_other(pair: tuple[str, str], known: dict[str, Module]) -> list[str]:
    found = []
    for package, other in (pair, pair[::-1]):
        for module in known.values():
            if (module.name + ".").startswith(package + "."):
                others = sorted(name for name in module.all_imports if (name + ".").startswith(other + "."))
                found += [f"{module.name} imports {name}: the packages stand apart" for name in others]
    return found


def _rule(name: str) -> frozenset[str] | None:
    narrow = [key for key in MAY_IMPORT if name == key or name.startswith(key + ".")]
    return MAY_IMPORT[max(narrow, key=len)]


def _package_violations(module: Module, allowed: frozenset[str] | None) -> list[str]:
    if allowed is None:
        return []
    own = max((key for key in MAY_IMPORT if (module.name + ".").startswith(key + ".")), key=len)
    found = []
    for imported in sorted(module.imports):
        if imported.split(".")[0] not in MAY_IMPORT:
            continue  # not ours
        if not any((imported + ".").startswith(name + ".") for name in (*allowed, own)):
            found.append(f"{module.name} imports {imported}")
    return found


def _is_pure(name: str) -> bool:
    parts = name.split(".")
    if parts[0] == "magnetar_wire":
        return ".".join(parts[:2]) not in WIRE_SHELLS
    return name in RULES


def _reached(module: Module, known: dict[str, Module]) -> dict[str, str]:
    """Return the modules with I/O that this module imports, however indirectly, and through which module."""
    seen, waiting = {module.name}, [module]
    reached: dict[str, str] = {}
    while waiting:
        current = waiting.pop()
        for imported in sorted(current.imports):
            if imported.split(".")[0] in NOT_IN_RULES:
                reached.setdefault(imported.split(".")[0], current.name)
            elif imported in known and imported not in seen:
                seen.add(imported)
                waiting.append(known[imported])
    return reached
