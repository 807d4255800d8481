"""Text from elsewhere, made safe to show: a terminal and a browser display it, and obey nothing in it."""

from __future__ import annotations

import re
from html import escape
from typing import IO, Any, cast

# Control characters but for tab and line ends; line and paragraph separators; bidirectional marks, overrides and
# isolates; characters of no width but the joiners, which words and emoji are written with; tags; halves of pairs.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    r"\U000e0000-\U000e007f]|\r(?!\n)"
)
SECRET_SHAPES = re.compile(
    r"\b((AKIA|ASIA)[0-9A-Z]{16}|hf_[A-Za-z0-9]{30,}|sk-([A-Za-z0-9]{20,}|(proj|ant|or|svcacct)-[\w-]{20,})"
    r"|gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_\w{22,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|nvapi-[\w-]{20,}"
    r"|AIza[\w-]{35}|dckr_pat_[\w-]{20,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*|Bearer [\w.~+/-]{16,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(-----[^\"]*)?"
)
"""What well-known secrets look like."""

_URL_SECRET = re.compile(
    r"(?<=://)[^\s/@\"'\\]*(?=@)|(?<=[?&])(?P<name>[\w-]*(key|token|secret|password|pwd|signature))=[^\s&\"'\\]+", re.I
)
# Select Graphic Rendition of ECMA-48: colours, bold and underlined text.
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def inert(text: str) -> str:
    r"""The text with each character that a terminal would obey written as an escape, such as `\x1b`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def hide_secrets(text: str) -> str:
    """The text with `…` for each well-known secret, and for the user and the keys of URLs; JSON stays JSON."""
    hidden = _URL_SECRET.sub(lambda found: f"{found['name']}=…" if found["name"] else "…", text)
    return SECRET_SHAPES.sub("…", hidden)


def without_colours(line: str) -> str:
    """A line of a log without the escape sequences of its colours."""
    return _COLOUR.sub("", line)


def html(value: object) -> str:
    """A value as text in HTML."""
    return escape(inert(str(value)))


class _InertStream:
    """Makes inert what is written to it."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write the text, made inert."""
        return self.raw.write(inert(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def inert_stream(raw: IO[str]) -> IO[str]:
    """A text stream that makes inert what is written to it, and is like the one behind it otherwise."""
    return cast("IO[str]", _InertStream(raw))


def raw_stream(stream: IO[str]) -> IO[str]:
    """The stream below an inert one, for callers that write colours. Any other stream is returned unchanged."""
    return stream.raw if isinstance(stream, _InertStream) else stream
