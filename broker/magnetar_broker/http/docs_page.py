"""Render the OpenAPI document (openapi.py) as a page for people: `GET /docs`.

The page is complete in itself: no script, no other file, and nothing from the network, since a broker's network often
has no way out. Each operation is a `<details>`, which browsers open by themselves where their search finds something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final, TypeAlias

__all__ = ["render_page"]

Json: TypeAlias = Mapping[str, Any]

_CODE: Final = re.compile(r"`([^`]+)`")
_REFERENCE: Final = "#/components/schemas/"
_STYLE: Final = """
:root { color-scheme: light dark; --line: #d8dce2; --soft: #f4f6f8; --dim: #5b6470; --link: #0b5fae;
  --get: #1769aa; --put: #9a5b00; --post: #1b7a3d; --delete: #b3261e; --other: #5b6470 }
@media (prefers-color-scheme: dark) { :root { --line: #3a4049; --soft: #23272e; --dim: #a2abb7; --link: #79b8ff;
  --get: #3d8fd1; --put: #b97a1c; --post: #2f9a56; --delete: #d4554c; --other: #7c8794 } }
* { box-sizing: border-box }
html { scroll-padding-top: 1rem }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; display: grid; grid-template-columns: 15rem minmax(0, 62rem) }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 1.5rem 1rem; border-right: 1px solid
  var(--line); background: var(--soft) }
nav a { display: flex; justify-content: space-between; padding: .15rem .4rem; text-decoration: none; color: inherit }
nav a:hover { text-decoration: underline }
nav b { display: block; padding: 0 .4rem .5rem; font-size: 1.05rem }
nav small { color: var(--dim) }
main { padding: 1.5rem 2rem 6rem }
h1 { margin: 0 0 .5rem; font-size: 1.7rem }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.25rem }
h2::first-letter { text-transform: uppercase }
h3 { margin: 1rem 0 .3rem; font-size: .9rem; color: var(--dim) }
a { color: var(--link) }
code, pre { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
pre { margin: .3rem 0; padding: .6rem .8rem; overflow-x: auto; background: var(--soft); border: 1px solid var(--line);
  border-radius: 4px }
table { border-collapse: collapse; width: 100% }
td, th { padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }
th { font-weight: 600; color: var(--dim); font-size: .85rem }
td:first-child { white-space: nowrap }
details { border: 1px solid var(--line); border-radius: 4px; margin: .35rem 0 }
details[open] { border-color: var(--dim) }
details > div { padding: .2rem 1rem 1rem; border-top: 1px solid var(--line) }
summary { display: grid; grid-template-columns: 4.6rem minmax(0, 1fr); gap: .1rem .6rem; padding: .4rem .6rem;
  cursor: pointer; list-style: none; align-items: baseline }
summary::-webkit-details-marker { display: none }
summary:hover { background: var(--soft) }
summary code { overflow-wrap: anywhere; font-weight: 600 }
summary code i { font-weight: 400; color: var(--dim) }
summary span { grid-column: 2; color: var(--dim); font-size: .9rem }
.verb { font: 700 11px/1.7 ui-monospace, Menlo, Consolas, monospace; text-align: center; color: #fff;
  border-radius: 3px; background: var(--other) }
.get { background: var(--get) } .put { background: var(--put) } .post { background: var(--post) }
.delete { background: var(--delete) } .missing .verb { background: var(--other) }
.missing summary code { color: var(--dim) }
.dim { color: var(--dim) }
@media (max-width: 50rem) { body { display: block } nav { position: static; height: auto } main { padding: 1rem } }
@media print { nav { display: none } body { display: block } }
"""


def render_page(document: Json) -> str:
    """Return the page's HTML."""
    by_tag: dict[str, list[tuple[str, str, Json]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            by_tag[operation["tags"][0]].append((verb, path, operation))
    info, schemas = document["info"], document["components"]["schemas"]
    title = escape(info["title"])
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><nav><b>{title}</b>"
    ]
    parts += [
        f'<a href="#{_anchor(tag)}">{escape(tag)} <small>{len(found)}</small></a>' for tag, found in by_tag.items()
    ]
    parts.append(f'<a href="#json-schemas">schemas <small>{len(schemas)}</small></a></nav><main>')
    parts.append(f"<h1>{title}</h1><p class=dim>Version {escape(info['version'])} · ")
    parts.append('<a href="openapi.json">openapi.json</a></p>')
    parts.append(f"<p>{_format_text(info['description'])}</p>")
    parts.append("<p>In the bodies, names with a * are required, and names that are not shown are ignored.</p>")
    parts += _render_statuses(document["components"]["responses"])
    for tag, found in by_tag.items():
        parts.append(f'<h2 id="{_anchor(tag)}">{escape(tag)}</h2>')
        for verb, path, operation in found:
            parts += _render_operation(verb, path, operation, schemas)
    parts.append('<h2 id="json-schemas">schemas</h2>')
    for name, schema in schemas.items():
        parts.append(f'<details id="schema-{escape(name)}"><summary><b>{escape(name)}</b></summary><div>')
        parts.append(f"{_render_schema(schema, schemas)}</div></details>")
    parts.append("</main></body></html>")
    return "".join(parts)


def _render_statuses(responses: Json) -> Iterator[str]:
    yield "<h3>Refused requests</h3><table><tr><th>Status<th>Meaning</tr>"
    for status, response in responses.items():
        yield f"<tr><td>{status}<td>{_format_text(response['description'])}</tr>"
    yield "</table>"


def _render_operation(verb: str, path: str, operation: Json, schemas: Json) -> Iterator[str]:
    kind = ' class="missing"' if "x-missing" in operation else ""
    summary = operation.get("description") if kind else operation["summary"]
    shown = re.sub(r"(\{[\w.]+\})", r"<i>\1</i>", escape(path))
    yield f'<details{kind} id="{escape(operation["operationId"])}"><summary><b class="verb {verb}">{verb.upper()}</b>'
    yield f"<code>{shown}</code><span>{_format_text(summary or '')}</span></summary><div>"
    if "description" in operation and not kind:
        yield "".join(f"<p>{_format_text(text)}</p>" for text in operation["description"].split("\n\n"))
    yield from _render_parameters(operation.get("parameters", ()))
    body = operation.get("requestBody")
    if body is not None:
        yield f"<h3>Body{'' if body['required'] else ' (optional)'}</h3>"
        yield from _render_content(body["content"], schemas)
    for status, response in operation["responses"].items():
        # Answers that all operations share are listed once, above.
        if "$ref" not in response:
            yield f"<h3>{status}: {_format_text(response['description'])}</h3>"
            yield from _render_headers(response.get("headers", {}))
            yield from _render_content(response.get("content", {}), schemas)
    yield from _render_names(operation)
    yield "</div></details>"


def _render_parameters(parameters: Iterable[Json]) -> Iterator[str]:
    rows = list(parameters)
    if not rows:
        return
    yield "<h3>Parameters</h3><table><tr><th>Name<th>In<th>Type<th></tr>"
    for one in rows:
        default = f", {escape(one['schema']['default'])} by default" if "default" in one["schema"] else ""
        yield f"<tr><td><code>{escape(one['name'])}</code><td>{one['in']}<td>{_inline_type(one['schema'])}{default}"
        yield f"<td>{_format_text(one.get('description', ''))}</tr>"
    yield "</table>"


def _render_headers(headers: Json) -> Iterator[str]:
    if headers:
        yield "<table><tr><th>Header<th></tr>"
        for name, header in headers.items():
            yield f"<tr><td><code>{escape(name)}</code><td>{_format_text(header['description'])}</tr>"
        yield "</table>"


def _render_content(content: Json, schemas: Json) -> Iterator[str]:
    for content_type, media in content.items():
        schema = media.get("schema")
        if content_type != "application/json":
            yield f"<p class=dim>{escape(content_type)}</p>"
        elif schema is not None:
            yield _render_schema(schema, schemas)


def _render_names(operation: Json) -> Iterator[str]:
    call = operation.get("x-call")
    if call is not None:
        methods = ", ".join(f"<code>{escape(name)}</code>" for name in operation["x-python"])
        yield f"<h3>Elsewhere</h3><p>gRPC <code>{escape(call)}</code>"
        yield f" · Python {methods}" if methods else ""
        yield f" · role {escape(operation['x-role'])}</p>"


def _render_schema(schema: Json, schemas: Json) -> str:
    """Return the schema itself; those that it refers to are links."""
    shown = schemas[schema["$ref"].removeprefix(_REFERENCE)] if "$ref" in schema else schema
    return f"<pre>{_format_schema(shown, 0)}</pre>"


def _format_schema(schema: Json, depth: int) -> str:
    """Return the schema as the JSON value that it describes, with types in the values' positions."""
    indent = "  " * (depth + 1)
    if schema.get("properties"):
        required = schema.get("required", ())
        lines = [
            f"{indent}<b>{escape(name)}</b>{'*' if name in required else ''}: {_format_schema(one, depth + 1)}"
            f"{_comment(one)}"
            for name, one in schema["properties"].items()
        ]
        return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}"
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"[{_format_schema(schema['items'], depth)}, …]"
    if isinstance(schema.get("additionalProperties"), dict):
        return "{" + f"name: {_format_schema(schema['additionalProperties'], depth)}, …" + "}"
    return _inline_type(schema)


def _comment(schema: Json) -> str:
    return f'  <span class="dim">{_format_text(schema["description"])}</span>' if "description" in schema else ""


def _inline_type(schema: Json) -> str:
    reference = schema.get("$ref", "")
    if reference:
        name = escape(reference.removeprefix(_REFERENCE))
        return f'<a href="#schema-{name}">{name}</a>'
    if "const" in schema:
        return escape(repr(schema["const"]))
    if "enum" in schema:
        return " | ".join(escape(f'"{one}"' if isinstance(one, str) else str(one)) for one in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(_inline_type(one) for one in schema[several])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{_inline_type(schema.get('items', {}))}, …]"
    name = " | ".join(kind) if isinstance(kind, list) else str(kind)
    if "minimum" in schema and "maximum" in schema:
        name += f" {_format_number(schema['minimum'])} … {_format_number(schema['maximum'])}"
    return escape(name)


def _format_number(number: int) -> str:
    for bits in (63, 64, 31, 32):
        for value, text in ((2**bits - 1, f"2^{bits}-1"), (-(2**bits), f"-2^{bits}")):
            if number == value:
                return text
    return str(number)


def _format_text(text: str) -> str:
    """Return the text with `code` marked."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _anchor(tag: str) -> str:
    return "tag-" + re.sub(r"\W+", "-", tag)
