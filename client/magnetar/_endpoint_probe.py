"""Finding out what is wrong with an address at which no broker answers, for the error that says so.

A broker has three ports: its own protocol (gRPC, 6652 by default), which service URLs name, Pulsar's (6650) and HTTP
(8080). gRPC reports the wrong port, a firewall and a name that can't be resolved alike, as a connection that
failed. So the address is connected to once more without gRPC, and the reply tells the protocol:

    sent                          received                         it is
    HTTP/2's preface              a frame of type SETTINGS         HTTP/2: gRPC, but maybe another server
                                  HTTP/1…                          an HTTP server
                                  an alert of TLS                  a server that expects TLS
    CONNECT of Pulsar's protocol  CONNECTED, or any other command  a listener for Pulsar's clients

CONNECT is sent on a connection of its own, where the preface got no reply. Nothing that is received is trusted: at most
`_MAX_REPLY` bytes are read and a few of them shown.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Final

from magnetar_wire.interruptible_wait import join_thread

__all__ = [
    "PULSAR_CONNECT",
    "describe_endpoint",
    "describe_endpoints",
    "describe_endpoints_blocking",
    "describe_reply",
]

_HTTP2_SETTINGS: Final = b"\0\0\0\x04\0\0\0\0\0"
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _HTTP2_SETTINGS
# A frame with a command alone: CONNECT (type 2), whose client_version is "probe" and protocol_version 19.
PULSAR_CONNECT: Final = b"\0\0\0\x11\0\0\0\x0d" + b"\x08\x02\x12\x09" + b"\x0a\x05probe" + b"\x20\x13"
_MAX_REPLY: Final = 4096
_SHOWN_BYTES: Final = 24
# For each of: resolving and connecting, the first reply, the second one.
_TIMEOUT_S: Final = 1.5
_MAX_ADDRESSES: Final = 5


async def describe_endpoints(
    addresses: Sequence[str], timeout_s: float = _TIMEOUT_S, *, failed: bool | None = True
) -> str:
    """Describe what is found at each of the first addresses, in a sentence without its end.

    `failed`: a request has failed there. False: none has, so a server that answers in HTTP/2 may be a broker that is
    slow, and nothing is said of it. None: no request was made, since the URL has another scheme. Such a server is
    described as a broker then.
    """
    asked = addresses[:_MAX_ADDRESSES]
    found = await asyncio.gather(*(describe_endpoint(address, timeout_s, failed=failed) for address in asked))
    return "; ".join(filter(None, found)) + (
        f"; {len(addresses) - len(asked)} more" if any(found) and len(addresses) > len(asked) else ""
    )


async def describe_endpoint(address: str, timeout_s: float = _TIMEOUT_S, *, failed: bool | None = True) -> str:
    host, _, port = address.rpartition(":")
    try:
        reply = await _exchange(host.strip("[]"), int(port), _HTTP2_PREFACE, timeout_s)
        if not reply:
            reply = await _exchange(host.strip("[]"), int(port), PULSAR_CONNECT, timeout_s)
    except TimeoutError:
        return f"{address} can't be reached: it did not accept a connection within {timeout_s:g} s"
    except ConnectionRefusedError:
        return f"no process listens at {address}"
    except socket.gaierror as error:
        return f"the host name of {address} can't be resolved: {error.strerror}"
    except UnicodeError:  # Python's resolver raises it for labels that no host name has
        return f"the host name of {address} can't be resolved: it is not a host name"
    except OSError as error:
        return f"{address} can't be reached: {error.strerror or error}"
    return describe_reply(address, reply, failed=failed)


def describe_endpoints_blocking(addresses: Sequence[str], timeout_s: float, limit_s: float) -> str:
    """Describe the addresses of a URL with another scheme, to which no request is made, for a caller without an event
    loop. Empty if that took longer than `limit_s`."""
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: found.append(asyncio.run(describe_endpoints(addresses, timeout_s, failed=None))),
        name="magnetar endpoint probe",
        daemon=True,
    )
    thread.start()
    join_thread(thread, limit_s)
    return found[0] if found else ""


def describe_reply(address: str, reply: bytes, *, failed: bool | None = True) -> str:
    """Describe who listens by the first bytes of a reply to a probe."""
    if not reply:
        return f"{address} accepts connections and sends nothing: it hangs, has too many connections, or is no broker"
    if reply.startswith(b"HTTP/") or reply[:_SHOWN_BYTES].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return f"{address} answers in HTTP, as a broker's port for its HTTP API does (8080 by default)"
    if _is_pulsar_frame(reply):
        who = _server_version(reply)
        told = f"{address} answers in Pulsar's protocol, as a broker's port for Pulsar's clients does (6650 by default)"
        return f"{told}, and calls itself {who!r}" if who else told
    if reply[:1] == b"\x15" and reply[1:2] == b"\x03":
        return f"{address} expects TLS, which a broker's own port does not speak"
    if len(reply) >= len(_HTTP2_SETTINGS) and reply[3:9] == _HTTP2_SETTINGS[3:9]:
        if failed is None:
            return f"{address} looks like a broker's own port: write magnetar://{address}"
        return f"{address} answers in HTTP/2, as gRPC does, but not as a broker" if failed else ""
    return f"{address} answers in another protocol, which begins with {reply[:_SHOWN_BYTES]!r}"


def _is_pulsar_frame(reply: bytes) -> bool:
    """Two sizes, of the frame and of the command in it, and a command that begins with its type."""
    if len(reply) < 10:
        return False
    frame, command = int.from_bytes(reply[:4]), int.from_bytes(reply[4:8])
    return frame == command + 4 and reply[8] == 0x08


def _server_version(reply: bytes) -> str:
    """What a listener of Pulsar's protocol calls itself; empty: it does not say."""
    from google.protobuf.message import DecodeError

    from magnetar_protos.pulsar_pb2 import BaseCommand

    try:
        command = BaseCommand.FromString(reply[8 : 4 + int.from_bytes(reply[:4])])
    except DecodeError:
        return ""
    return command.connected.server_version[:_SHOWN_BYTES]


async def _exchange(host: str, port: int, request: bytes, timeout_s: float) -> bytes:
    """The beginning of the reply; empty: none came in time, or the connection was closed. Raises OSError where there is
    no connection."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
    reply = b""
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(request)
            reply = await reader.read(_MAX_REPLY)
    except OSError:  # TimeoutError is one
        pass
    finally:
        writer.close()
    return reply
