"""Secrets in settings: found by the name of a key, also within JSON, and by what a value looks like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from toolkit import documents
from toolkit.text import SECRET_SHAPES

# Names of secrets end like this: HF_TOKEN, AWS_SECRET_ACCESS_KEY, MY_PWD, PGPASSWORD, dbPassword, api-key, TOKEN_2.
_NAME = re.compile(
    r"(password|passwd|passphrase|secret|credential|api_?key|(^|_)(token|pwd|pass|auth)"
    r"|(^|_)(access|secret|private|account|master|encryption|signing)_?key)s?(_?\d+|_value|_b(ase)?64)?$"
)
# The shell's working folder is no password; tokens in the plural are counted.
_NO_SECRETS = re.compile(r"(OLD)?PWD|(.*[_-])?tokens", re.IGNORECASE)
_ON_OR_OFF = ("", "0", "1", "true", "false", "yes", "no", "on", "off", "none")
_SPECIAL_TOKEN = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")
_TO_BE_FILLED_IN = r"[$<{*]"
# A password in a URL, or a user that is a key: long, and with digits.
_IN_URL = re.compile(
    rf"\w://[^\s/@]*:(?!{_TO_BE_FILLED_IN})(?=[^\s@]*[^\s/@\d])[^\s@]*+@|\w://[^\s/@]*:\d+@"
    r"|\w://(?=[^@]*\d)[\w.~%+-]{16,}@"
)
_PAIR = re.compile(r"([A-Za-z][\w-]*)=([^\s&;,…]+)")
_RANDOM = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/]{32,}={0,2}")
# Neighbours of random letters and digits are of different kinds in 62% of cases, those of words and names rarely.
_SHARE_OF_CHANGES = 0.45


def secret_keys(name: str, value: Any) -> Iterator[str]:
    """The keys, in dots, of what looks like a secret in the setting `name`: itself, or what its value holds."""
    if _names_secret(name) and str(value).lower() not in _ON_OR_OFF:
        yield name
    else:
        yield from _in_value(name, value)


def without_secrets(text: str) -> str:
    """The text to be shown, with `…` for each word that looks like a secret, or that follows the name of one."""
    words = text.split(" ")
    if SECRET_SHAPES.search(text) and not any(map(SECRET_SHAPES.search, words)):
        return "…"
    hidden = [_is_secret(word) or _announces_secret(before) for before, word in zip(["", *words], words, strict=False)]
    return " ".join("…" if hide else word for hide, word in zip(hidden, words, strict=True))


def _announces_secret(word: str) -> bool:
    """Whether it is a flag, or a key with its colon, that names a secret: `--api-key`, `'password':`."""
    return (word.startswith("-") or word.endswith(":")) and _names_secret(word.strip("{['\":"))


def _names_secret(name: str) -> bool:
    key = name.rpartition(".")[2]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()
    return _NAME.search(words) is not None and not _NO_SECRETS.fullmatch(key)


def _in_value(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(documents.Unfit):
            value = documents.decode(value)
    if isinstance(value, str) and _is_secret(value):
        yield name
    members = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    for key, inner in members.items() if isinstance(members, Mapping) else ():
        if not (isinstance(inner, str) and _SPECIAL_TOKEN.fullmatch(inner)):
            yield from secret_keys(f"{name}.{key}" if name else str(key), inner)


def _is_secret(text: str) -> bool:
    if _IN_URL.search(text) or SECRET_SHAPES.search(text) or _is_random(text):
        return True
    return any(
        _names_secret(key) and inner.lower() not in _ON_OR_OFF and not re.match(_TO_BE_FILLED_IN, inner)
        for key, inner in _PAIR.findall(text)
    )


def _is_random(text: str) -> bool:
    """Whether it looks like a key made by a machine, and not like words, a digest or a path."""
    if not _RANDOM.fullmatch(text):
        return False
    kinds = [(letter.isdigit(), letter.isupper()) for letter in text.rstrip("=")]
    return sum(one != other for one, other in pairwise(kinds)) / len(kinds) > _SHARE_OF_CHANGES
