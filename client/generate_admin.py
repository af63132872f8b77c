"""Generate the methods of `magnetar.admin` from the table of admin calls: `python client/generate_admin.py [--accept]`.

Written are:

- magnetar/admin/_async_methods.py: a class for each group of methods, with one method for each `Method` in the table
  that has a docstring. The class inherits the group's class in _written_methods.py, if there is one.
- magnetar/admin/_sync_methods.py: for each of these, a class whose methods run the asynchronous ones.
- the tables of methods and calls in administration.md, and of policies in policies.md.
- delivery_reasons.md: the table of reasons why a subscription delivers nothing.
- magnetar_cli/administration/policy_list.py: what commands need to know of the policies.

The code is formatted by ruff. Then tests/unit/admin_records.py adds new calls and methods to the files that record
them. If a recorded one was changed or removed, it shows the difference and fails; with `--accept` it records that, too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from magnetar.admin import models, reading
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.call import AdminCall, Method, Scope
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.admin.policies import POLICIES, Level, Policy
from magnetar_wire.admin.policy_effects import EFFECTS
from magnetar_wire.delivery_reasons import REASONS

__all__ = ["generate"]

_ROOT = Path(__file__).resolve().parent
_ADMIN = Path("magnetar/admin")
_GUIDE = Path("administration.md")
_POLICIES_PAGE = Path("policies.md")
_REASONS_PAGE = Path("delivery_reasons.md")
_POLICY_LIST = Path("deploy/magnetar_cli/administration/policy_list.py")
_GROUPS = {
    "clusters": "Clusters.",
    "tenants": "Tenants, which own namespaces.",
    "namespaces": "Namespaces. They are named `tenant/namespace`.",
    "topics": "Topics, with and without partitions. A partition is a topic too, `<name>-partition-<i>`.",
    "schemas": "Schemas of topics. The name of a partition stands for its topic.",
    "subscriptions": "Subscriptions of a topic; of a partitioned topic, on all its partitions.",
    "brokers": "Brokers.",
    "reading": "Bulk reads of the log of a topic without partitions, or of a partition: `log` is its name.",
}
_MODULES = {
    "magnetar.admin.models": models.__all__,
    "magnetar.admin.reading": reading.__all__,
    "magnetar.schema": ["Schema", "SchemaInfo"],
    "magnetar.admin._values": ["StartPoint", "next_message", "partition_of", "start_at", "value_of"],
    "magnetar_wire.message_id": ["MessageId"],
    "typing": ["Any"],
    "collections.abc": ["Mapping", "Sequence"],
}
# Of a docstring's lines, without indent and quotes.
_WIDTH = 108


def generate() -> dict[Path, str]:
    """Return the contents of the generated files, by their paths."""
    written = (_ROOT / _ADMIN / "_written_methods.py").read_text()
    asynchronous = _async_module(written)
    return {
        _ROOT / _ADMIN / "_async_methods.py": _format(asynchronous),
        _ROOT / _ADMIN / "_sync_methods.py": _format(_sync_module(asynchronous, written)),
        _ROOT / _GUIDE: _guide((_ROOT / _GUIDE).read_text()),
        _ROOT / _POLICIES_PAGE: _replace_table(
            (_ROOT / _POLICIES_PAGE).read_text(), "## All policies", _table_of_policies()
        ),
        _ROOT / _REASONS_PAGE: _replace_table(
            (_ROOT / _REASONS_PAGE).read_text(), "## All reasons", _table_of_reasons()
        ),
        _ROOT.parent / _POLICY_LIST: _format(_policy_list()),
    }


def _async_module(written: str) -> str:
    classes = []
    for group, doc in _GROUPS.items():
        name = group.capitalize()
        base = f"Written{name}" if f"class Written{name}(" in written else "AsyncGroup"
        methods = [_async_method(call, method) for call, method in _methods(group) if method.doc]
        classes.append(f'class Async{name}({base}):\n    """{doc}"""\n\n' + "\n".join(methods))
    body = "\n\n".join(classes)
    bases = [f"Written{group.capitalize()}" for group in _GROUPS if f"(Written{group.capitalize()})" in body]
    return _module(
        "The methods of `magnetar.admin` that are made from the table of admin calls.",
        [
            "from magnetar.admin._group import AsyncGroup",
            f"from magnetar.admin._written_methods import {', '.join(bases)}",
        ],
        [f"Async{group.capitalize()}" for group in _GROUPS],
        body,
    )


def _methods(group: str) -> Iterator[tuple[AdminCall, Method]]:
    for call in ADMIN_CALLS.values():
        for method in call.methods:
            if method.name.startswith(f"{group}."):
                yield call, method


def _async_method(call: AdminCall, method: Method) -> str:
    group_and_name, _, rest = method.signature.partition("(")
    name = group_and_name.partition(".")[2]
    source = f"async def {name}(self, {rest}".replace("(self, )", "(self)")
    definition = ast.parse(f"{source}: ...").body[0]
    assert isinstance(definition, ast.AsyncFunctionDef)
    assert definition.returns is not None
    arguments = definition.args
    parameters = [one.arg for one in [*arguments.args[1:], *arguments.kwonlyargs]]
    used = " ".join(method.fields.values())
    fields = {one: one for one in parameters if not re.search(rf"\b{one}\b", used)} | dict(method.fields)
    sent = ", ".join([f'"{call.name}"', *(f"{field}={value}" for field, value in fields.items())])
    body = _body(call, method, ast.unparse(definition.returns), sent)
    aliases = [f"    {alias} = {name}\n" for alias in method.aliases]
    return (
        textwrap.indent(f"{_builtin_list(source)}:\n    {_docstring(_wrap(method.doc))}\n{body}", "    ")
        + "\n"
        + "\n".join(["", *aliases] if aliases else [])
    )


def _body(call: AdminCall, method: Method, returns: str, sent: str) -> str:
    if "names" in call.response.DESCRIPTOR.fields_by_name:
        return f"    return await self._calls.names({sent})"
    if returns == "None":
        return f"    await self._calls.call({sent})"
    result = f"answer.{method.result}" if method.result else "answer"
    if returns in ("int", "bool", "str"):
        value = f"{returns}({result})"
    elif returns.startswith("dict[str, str]"):
        value = f"dict({result})"
    elif returns == "list[str]":
        value = f"list({result})"
    elif returns.startswith(("tuple[", "dict[")):
        value = f"{returns.partition('[')[0]}({result})"
    elif returns.startswith("list["):
        value = f"[value_of({returns[5:-1]}, one) for one in {result}]"
    else:
        value = f"value_of({returns}, {result})"
    return f"    answer = await self._calls.call({sent})\n    return {value}"


def _sync_module(asynchronous: str, written: str) -> str:
    definitions = {
        node.name: node
        for source in (asynchronous, written)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }
    classes = []
    for group in _GROUPS:
        name = group.capitalize()
        kind = definitions[f"Async{name}"]
        bases = [ast.unparse(base) for base in kind.bases]
        parts = [kind, *(definitions[base] for base in bases if base in definitions)]
        methods = [text for part in parts for text in _sync_methods(part)]
        doc = ast.get_docstring(kind)
        classes.append(f'class {name}(SyncGroup[Async{name}]):\n    """{doc}"""\n\n' + "\n".join(methods))
    return _module(
        "The methods of `magnetar.admin` for synchronous use: each runs the asynchronous one.",
        [
            "from magnetar.admin._async_methods import " + ", ".join(f"Async{one.capitalize()}" for one in _GROUPS),
            "from magnetar.admin._group import SyncGroup",
        ],
        [group.capitalize() for group in _GROUPS],
        "\n\n".join(classes),
    )


def _sync_methods(kind: ast.ClassDef) -> Iterator[str]:
    for node in kind.body:
        if isinstance(node, ast.Assign):
            yield f"    {ast.unparse(node)}\n"
        if not isinstance(node, ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        assert node.returns is not None
        passed = [one.arg for one in node.args.args[1:]] + [f"{one.arg}={one.arg}" for one in node.args.kwonlyargs]
        run = f"self._run(self._group.{node.name}({', '.join(passed)}))"
        returns = ast.unparse(node.returns)
        signature = _builtin_list(f"def {node.name}({ast.unparse(node.args)}) -> {returns}")
        yield textwrap.indent(
            f"{signature}:\n    {_docstring(ast.get_docstring(node) or '')}\n"
            f"    {run if returns == 'None' else 'return ' + run}\n",
            "    ",
        )


def _builtin_list(signature: str) -> str:
    """Name the type `list` so that it is not the method `list` of the same class."""
    return re.sub(r"(?<![.\w])list\[", "builtins.list[", signature)


def _wrap(doc: str) -> str:
    return "\n".join("\n".join(textwrap.wrap(line, _WIDTH)) for line in doc.split("\n"))


def _docstring(doc: str) -> str:
    text = textwrap.indent(doc, "    ").strip()
    return f'"""{text}"""' if "\n" not in doc else f'"""{text}\n    """'


def _module(doc: str, imports: list[str], names: list[str], body: str) -> str:
    found = [
        f"from {module} import {', '.join(used)}"
        for module, known in _MODULES.items()
        if (used := [name for name in known if re.search(rf"\b{name}\b", body)])
    ]
    if "builtins." in body:
        found.append("import builtins")
    listed = ", ".join(f'"{name}"' for name in names)
    return (
        f'"""{doc}\n\nGenerated by client/generate_admin.py: do not edit.\n"""\n\n'
        + "from __future__ import annotations\n\n"
        + "\n".join(imports + found)
        + f"\n\n__all__ = [{listed}]\n\n\n"
        + body
    )


def _format(source: str) -> str:
    for arguments in (["check", "--select", "I,RUF022", "--fix", "--quiet"], ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(_ROOT / "x.py"), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def _guide(guide: str) -> str:
    guide = _replace_table(guide, "## Methods", _table_of_methods())
    return _replace_table(guide, "## Calls", _table_of_calls())


def _replace_table(guide: str, heading: str, table: str) -> str:
    """Replace the first table below the heading."""
    before, heading, section = guide.partition(f"{heading}\n")
    return before + heading + re.sub(r"(?:^\|.*\n)+", lambda match: table, section, count=1, flags=re.MULTILINE)


def _table_of_methods() -> str:
    lines = ["| group | methods |", "|---|---|"]
    for group in _GROUPS:
        # Two calls can have one method.
        names = dict.fromkeys(name for _, method in _methods(group) for name in _names(method))
        methods = ", ".join(f"`{name.partition('.')[2]}`" for name in names)
        lines.append(f"| `admin.{group}` | {methods} |")
    return "\n".join(lines) + "\n"


def _table_of_calls() -> str:
    lines = ["| method | call | carried out by | partitioned topic | repeated | role |", "|---|---|---|---|---|---|"]
    for call in ADMIN_CALLS.values():
        if not call.methods:
            continue
        methods = ", ".join(f"`{name}`" for method in call.methods for name in _names(method))
        partitions = call.partitions.value if call.scope is Scope.TOPIC else ""
        repeated = "yes" if call.idempotent else "no"
        lines.append(
            f"| {methods} | `{call.name}` | {call.scope.value} | {partitions} | {repeated} | {call.role.value} |"
        )
    return "\n".join(lines) + "\n"


def _table_of_policies() -> str:
    lines = [
        "| policy | in Pulsar's REST API | brokers' setting | namespaces | topics | what it does | connected clients |",
        "|---|---|---|---|---|---|---|",
    ]
    for policy in POLICIES:
        paths = dict.fromkeys(path.name or policy.name for level in Level if (path := policy.path(level)) is not None)
        effect = EFFECTS[policy.field]
        levels = " | ".join(_describe_effect(policy, level) for level in Level)
        names = f"`{policy.field}` | {_code(paths)} | {_code(effect.settings)}"
        lines.append(f"| {names} | {levels} | {policy.help} | {effect.live} |")
    return "\n".join(lines) + "\n"


def _table_of_reasons() -> str:
    lines = ["| code | when | what to do |", "|---|---|---|"]
    for kind in REASONS.values():
        normal = " Nothing is wrong." if kind.is_normal else ""
        action = re.sub(r"\{(\w+)\}", r"*\1*", kind.action)
        lines.append(f"| `{kind.code}` | {kind.meaning}{normal} | {action} |")
    return "\n".join(lines) + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _describe_effect(policy: Policy, level: Level) -> str:
    if policy.path(level) is None:
        return ""
    missing = policy.effect(level)
    return f"stored; missing: {missing}" if missing else "in effect"


def _policy_list() -> str:
    rows = [
        f"PolicyRow({policy.field!r}, {policy.name!r}, {policy.namespace is not None}, {policy.topic is not None}, "
        f"{', '.join(map(repr, _describe_option(policy)))}, {policy.help!r}),"
        for policy in POLICIES
    ]
    return (
        '"""The policies of namespaces and topics, for the options of commands, whose help imports no protobuf.\n\n'
        'Generated by client/generate_admin.py from the table of policies: do not edit.\n"""\n\n# ruff: noqa: E501\n\n'
        "from __future__ import annotations\n\nfrom typing import Final, NamedTuple\n\n"
        '__all__ = ["POLICY_ROWS", "PolicyRow"]\n\n\n'
        "class PolicyRow(NamedTuple):\n"
        "    field: str\n    # Pulsar's name.\n    name: str\n    of_namespaces: bool\n    of_topics: bool\n"
        "    # bool, int or text.\n    kind: str\n    # The form of a text, and its parts.\n    metavar: str\n"
        "    parts: str\n    help: str\n\n\n"
        "POLICY_ROWS: Final = (\n" + "\n".join(rows) + "\n)\n"
    )


def _describe_option(policy: Policy) -> tuple[str, str, str]:
    """Return the kind of the policy's option, the form of its value, and the parts of that."""
    field = Policies.DESCRIPTOR.fields_by_name[policy.field]
    if field.name in ("auto_topic_creation", "auto_subscription_creation"):
        return "bool", "", ""
    if field.enum_type is not None:
        return "text", "VALUE", f"One of {', '.join(policy.part.schema(Policies.DESCRIPTOR)['enum'])}."
    if field.message_type is None:
        return ("bool" if field.cpp_type == field.CPPTYPE_BOOL else "int"), "", ""
    if field.name == "persistence":
        return "text", "E,Qw,Qa", "Ensemble size, write quorum and ack quorum, e.g. 3,3,2."
    names = [one.name for one in field.message_type.fields]
    if names == ["types"]:
        return "text", "VALUE,…", f"Of {', '.join(policy.part.schema(Policies.DESCRIPTOR)['items']['enum'])}."
    if names == ["names"]:
        return "text", "VALUE,…", ""
    return "text", "NAME=VALUE,…", "" if names == ["values"] else f"Names: {', '.join(_describe_parts(policy, field))}."


def _describe_parts(policy: Policy, field: Any) -> list[str]:
    """Return the names in the value of the policy's option, each with its values if they are words."""
    # A quota has a limit of its own type.
    assert field.message_type is not None
    unused = {"backlog_quota_size": "limit_time_seconds", "backlog_quota_age": "limit_size_bytes"}.get(policy.field)
    return [
        f"{one.name} ({' or '.join(value.name.lower() for value in one.enum_type.values)})"
        if one.enum_type
        else one.name
        for one in field.message_type.fields
        if one.name != unused
    ]


def _names(method: Method) -> list[str]:
    group = method.name.partition(".")[0]
    return [method.name, *(f"{group}.{alias}" for alias in method.aliases)]


if __name__ == "__main__":
    for path, text in generate().items():
        path.write_text(text)
    # In a new process, which imports the methods as they are now.
    records = [sys.executable, "-m", "tests.unit.admin_records", *sys.argv[1:]]
    raise SystemExit(subprocess.run(records, cwd=_ROOT.parent, check=False).returncode)
