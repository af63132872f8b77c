"""The C interface of the library that the stock Python client is made of.

The Python client has no option for the hashing scheme, and always uses the library's default. The library has the
option, and it is loaded already: only its C functions have to be called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import _pulsar

# Members of the C enum, by value.
SCHEMES = ("Murmur3_32Hash", "BoostHash", "JavaStringHash")
_LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


# Referenced for ever, since the library calls it from threads of its own.
_SILENT = _LOGGER(lambda level, file, line, message, context: None)


def send_keys(url: str, topic: str, scheme: str, keys: Iterable[str]) -> None:
    """Sends one message for each key, and waits for its receipt, with a producer that hashes by `scheme`."""
    # Looking a function up in the extension finds it in the library that the extension was linked with.
    library = ctypes.CDLL(_pulsar.__file__)

    def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        found = getattr(library, f"pulsar_{name}")
        found.restype, found.argtypes = result, arguments
        return found  # type: ignore[no-any-return]

    pointer, status, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p

    configuration = function("client_configuration_create", pointer)()
    function("client_configuration_set_logger", None, pointer, _LOGGER, pointer)(configuration, _SILENT, None)
    client = function("client_create", pointer, text, pointer)(url.encode(), configuration)
    options = function("producer_configuration_create", pointer)()
    function("producer_configuration_set_hashing_scheme", None, pointer, number)(options, SCHEMES.index(scheme))
    function("producer_configuration_set_batching_enabled", None, pointer, number)(options, 0)
    producer = pointer()
    create = function("client_create_producer", status, pointer, text, pointer, ctypes.POINTER(pointer))
    _check(create(client, topic.encode(), options, ctypes.byref(producer)))
    for key in keys:
        message = function("message_create", pointer)()
        function("message_set_content", None, pointer, text, ctypes.c_size_t)(message, b"", 0)
        function("message_set_partition_key", None, pointer, text)(message, key.encode())
        _check(function("producer_send", status, pointer, pointer)(producer, message))
        function("message_free", None, pointer)(message)
    _check(function("producer_close", status, pointer)(producer))
    function("producer_free", None, pointer)(producer)
    function("producer_configuration_free", None, pointer)(options)
    _check(function("client_close", status, pointer)(client))
    function("client_free", None, pointer)(client)
    function("client_configuration_free", None, pointer)(configuration)


def _check(result: int) -> None:
    if result:
        raise RuntimeError(f"The client library answered {result}, not 0")
