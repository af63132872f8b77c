"""The columns of the table of admin calls: what a row declares.

The broker, the Python client, the command line and the guide are made from the rows:

- **Broker**: the request is decoded as `request`, and refused if it has unknown fields. `scope` is the broker that
  carries the call out. That broker has one handler, the method with the row's name.
- **Another broker** forwards the call to the owner as `here.<name>`, with the same messages.
- **HTTP**: `routes` are the call's paths, bodies and statuses in Pulsar's REST API (http/route.py). A broker serves
  them at its HTTP port, `/openapi.json` describes them, and the client uses them for `http://` service URLs.
- **Client**: `methods` become methods of `magnetar.admin`, asynchronous and synchronous.
- **Lost answers**: clients and brokers send the request again if it is `idempotent`.

Nothing but protobuf is imported here, so that every part can read the table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

from magnetar_wire.admin.http.route import Route

__all__ = ["AdminCall", "Method", "Partitions", "Role", "Scope"]


class Scope(enum.Enum):
    """Which broker carries out a call. Clients send every call to any broker, which forwards it."""

    # The broker that the client called: from the metadata store, and by further calls to owners where it takes them.
    ANY_BROKER = "any broker"
    # The broker that the client called, about itself.
    THIS_BROKER = "the broker that answers"
    # The broker that the request names.
    NAMED_BROKER = "the named broker"
    # The owner of the bundle.
    BUNDLE = "the bundle's owner"
    # The owner of the topic; for a partitioned topic see `Partitions`.
    TOPIC = "the topic's owner"


class Partitions(enum.Enum):
    """What a call with the scope TOPIC does with a partitioned topic."""

    # It is refused: one partition is named instead.
    REFUSED = "refused"
    # It is refused unless the topic has a single partition.
    SINGLE = "only if there is one"
    # It is carried out on each partition, by their owners; the answers are merged.
    EACH = "each"


class Role(enum.Enum):
    """Who may make a call, following Pulsar's admin API.

    There is no authorization yet: brokers do not enforce this column. Each role includes the calls of those below it.
    """

    SUPERUSER = "superuser"
    TENANT_ADMIN = "tenant admin"
    # A role that may consume from the topic, or from the namespace's topics.
    CONSUME = "consume"
    # A role that may produce to the topic or consume from it.
    PRODUCE_OR_CONSUME = "produce or consume"
    # Other brokers only: there is no call `admin.<name>`.
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Method:
    """A method of `magnetar.admin` that makes a call.

    `python client/generate_admin.py` generates it, asynchronous and synchronous. One without `doc` is written by hand
    in `magnetar/admin/_written_methods.py`, and `signature` is its name alone.
    """

    # E.g. "topics.delete(topic: str, force: bool = False) -> None".
    signature: str
    doc: str = ""
    # The field of the response that is returned. Empty: the response itself.
    result: str = field(default="", kw_only=True)
    # Expressions for the request's fields. A parameter that none of them uses is the field of the same name.
    fields: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    # Other names of the same method.
    aliases: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """Group and name, e.g. "topics.delete"."""
        return self.signature.partition("(")[0]


@dataclass(frozen=True, slots=True)
class AdminCall:
    """A call `admin.<name>` of any broker; with the scopes TOPIC, BUNDLE and NAMED_BROKER also `here.<name>` of the
    owner."""

    name: str
    request: type[Message]
    response: type[Message]
    scope: Scope
    role: Role
    # Carrying it out twice does no harm. If the answer was lost, clients and brokers send the request again.
    idempotent: bool = field(default=False, kw_only=True)
    # A broker sends `here.<name>` again after a lost answer, though clients do not send `admin.<name>` again: an unload
    # that is repeated could also close the topic at its next owner.
    repeated_at_owner: bool = field(default=False, kw_only=True)
    partitions: Partitions = field(default=Partitions.REFUSED, kw_only=True)
    # The request's field with the topic's name.
    topic_field: str = field(default="topic", kw_only=True)
    methods: tuple[Method, ...] = field(default=(), kw_only=True)
    # Clients use the first one that carries all fields of the request.
    routes: tuple[Route, ...] = field(default=(), kw_only=True)

    @property
    def has_owner(self) -> bool:
        """Whether it is forwarded as `here.<name>`."""
        return self.scope in (Scope.TOPIC, Scope.BUNDLE, Scope.NAMED_BROKER)

    @property
    def is_repeated_at_owner(self) -> bool:
        return self.idempotent or self.repeated_at_owner

    @property
    def is_between_brokers(self) -> bool:
        return self.role is Role.BROKER
