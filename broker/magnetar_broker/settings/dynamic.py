"""Settings that are changed while a broker runs: Pulsar's dynamic configuration.

A setting is declared `dynamic`. Its override is stored in the metadata store as the text that the command line would
give. `DynamicSettings` belongs to a broker's process: it knows the values that the process started with, checks
overrides like values at the start, and changes the settings object that all parts of the broker read. It is the only
one that changes a settings object, and changes nothing but dynamic settings.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from pydantic import SecretBytes, SecretStr

from magnetar_wire.configuration import (
    Configuration,
    InvalidConfiguration,
    check_settings,
    parse_text,
    suggest_nearest,
)
from magnetar_wire.settings import public_name, settings_of

__all__ = ["DynamicSettings", "NotDynamic", "change_fields", "describe_settings"]

_log = logging.getLogger(__name__)
_MAX_VALUE_CHARACTERS: Final = 10_000

C = TypeVar("C", bound=Configuration)


class NotDynamic(ValueError):
    """There is no dynamic setting of this name, for the reason in the text."""


class DynamicSettings:
    def __init__(self, settings: Configuration, process: Configuration | None = None) -> None:
        """`settings`: what the parts of the broker read, with the values that the process was started with. `process`:
        all settings of the process, of which others than those are not dynamic."""
        self._settings = settings
        self._kind = type(settings)
        self._started_with = {name: getattr(settings, name) for name in self._kind.model_fields}
        self._declared = settings_of(self._kind)
        self._dynamic = [name for name, declared in self._declared.items() if declared.dynamic]
        self._names = {public_name(name, declared).lower(): name for name, declared in self._declared.items()}
        of_process = {} if process is None else settings_of(type(process))
        # The settings that exist, by all their names, which are compared without underscores and case.
        self._known = {_fold(name) for name in of_process} | {
            _fold(public_name(name, declared)) for name, declared in of_process.items()
        }
        # Overrides that were reported as invalid, so that each is reported once.
        self._reported: dict[str, str] = {}

    @property
    def public_names(self) -> list[str]:
        """The names of all dynamic settings, in Pulsar's spelling where they are Pulsar's."""
        return sorted(self.public_name(name) for name in self._dynamic)

    def public_name(self, name: str) -> str:
        """Return a setting's name for answers. A name that this version doesn't know stays as it is."""
        return public_name(name, self._declared[name]) if name in self._declared else name

    def find(self, given: str) -> str:
        """Return the name of the dynamic setting that is given in either spelling. Raises NotDynamic."""
        name = given if given in self._declared else self._names.get(given.lower())
        if name is None and _fold(given) in self._known:
            raise _not_dynamic(given)
        if name is None:
            near = suggest_nearest(given, [*self._dynamic, *self.public_names])
            raise NotDynamic(f"there is no setting {given!r:.100}{near}")
        if name not in self._dynamic:
            raise _not_dynamic(given)
        return name

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raise InvalidConfiguration unless a broker that was started like this one could have these overrides."""
        self._resolve(overrides)

    def apply(self, overrides: Mapping[str, str]) -> None:
        """Give all dynamic settings their overrides, or the values that the process was started with.

        Overrides that this broker can't have are reported and not applied: the broker that accepted them may have other
        settings or another version.
        """
        usable = self._find_usable(overrides)
        resolved = self._resolve(usable)
        changed: dict[str, Any] = {}
        for name in self._dynamic:
            before, value = getattr(self._settings, name), getattr(resolved, name)
            if value != before:
                _log.info("The dynamic setting %s is %s; it was %s", name, value, before)
                changed[name] = value
        self._settings.__dict__.update(changed)

    def _find_usable(self, overrides: Mapping[str, str]) -> dict[str, str]:
        usable = {name: text for name, text in overrides.items() if name in self._dynamic}
        try:
            self._resolve(usable)
        except InvalidConfiguration:
            usable = {}
        for name, text in overrides.items():
            if usable.get(name) == text:
                continue
            try:
                if name not in self._dynamic:
                    raise InvalidConfiguration(f"{name} is no dynamic setting of this version")
                self._resolve(usable | {name: text})
            except InvalidConfiguration as error:
                if self._reported.get(name) != text:
                    _log.warning("The dynamic setting %s = %.200s is not applied: %s", name, text, error)
                self._reported[name] = text
            else:
                usable[name] = text
        return usable

    def _resolve(self, overrides: Mapping[str, str]) -> Configuration:
        try:
            return self._parse_and_check(overrides)
        except InvalidConfiguration:
            raise
        except (ValueError, ArithmeticError) as error:  # a number with hundreds of digits
            raise InvalidConfiguration(f"a value can't be used: {error}") from error

    def _parse_and_check(self, overrides: Mapping[str, str]) -> Configuration:
        for name, text in overrides.items():
            if len(text) > _MAX_VALUE_CHARACTERS:
                raise InvalidConfiguration(f"{name}: the value is longer than {_MAX_VALUE_CHARACTERS:,} characters")
        values = {name: parse_text(self._kind, name, text) for name, text in overrides.items() if name in self._dynamic}
        return check_settings(self._kind, self._started_with | values)


def _fold(name: str) -> str:
    return name.replace("_", "").lower()


def _not_dynamic(name: str) -> NotDynamic:
    return NotDynamic(
        f"{name} can't be changed while the broker runs: set it in the broker's configuration, and restart the broker"
    )


def describe_settings(process: Configuration, running: Configuration) -> dict[str, str]:
    """Return all settings but secrets as texts, by their public names.

    `process`: those that the process was started with. `running`: those that its parts read now.
    """
    found = {}
    for name, declared in (settings_of(type(process)) | settings_of(type(running))).items():
        value = getattr(running if name in type(running).model_fields else process, name)
        if not isinstance(value, SecretStr | SecretBytes):
            found[public_name(name, declared)] = _text(value)
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(_text, value))
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


class _ChangedFields:
    __slots__ = ("_changed", "_settings")

    def __init__(self, settings: Configuration, changed: Mapping[str, Any]) -> None:
        self._settings = settings
        self._changed = changed

    def __getattr__(self, name: str) -> Any:
        if name in self._changed:
            return self._changed[name]
        computed = _properties(type(self._settings)).get(name)
        # A property reads the changed fields, too.
        return getattr(self._settings, name) if computed is None else computed(self)


@functools.cache
def _properties(kind: type[Configuration]) -> dict[str, Callable[[Any], Any]]:
    return {
        name: one.fget
        for ancestor in reversed(kind.__mro__)
        for name, one in vars(ancestor).items()
        if isinstance(one, property) and one.fget is not None
    }


def change_fields(settings: C, changed: Mapping[str, Any]) -> C:
    """Return a view of the settings in which some have other values. Dynamic settings change in it, too."""
    return cast(C, _ChangedFields(settings, changed))
