"""Words that GLOSSARY.md replaces get fewer: `python -m tests.words`."""

from __future__ import annotations

import pytest

from tests.words import count, packages, read_limits, words

# So far below its limit a package may be before the limit has to be lowered.
_SLACK = 25


def test_the_glossary_has_words() -> None:
    assert {"whoever", "told", "so many", "under way"} <= set(words())
    assert "entry" not in words()


@pytest.mark.parametrize("package", packages())
def test_a_package_uses_no_more_words_that_the_glossary_replaces(package: str) -> None:
    uses, limit = count(package).total(), read_limits()[package]
    assert uses <= limit, f"{uses} uses, {limit} before: `python -m tests.words --new` shows those in changed lines"
    assert uses >= limit - _SLACK, f"{uses} uses: lower the limit of {limit} with `python -m tests.words --write`"
