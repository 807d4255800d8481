"""Documents that others wrote: read once, within bounds of size, depth, items and time, into a type.

Every function raises Unfit, which says what is wrong and where in the document. Its reader knows the document's name
and who wrote it, so it raises the error that the user sees.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from urllib.parse import urlsplit

from toolkit.errors import PlatformError

if TYPE_CHECKING:
    import httpx
    from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

# 64-bit numbers have at most 20 digits; reckoning with longer ones takes time, and they fit nowhere.
_LONGEST_WHOLE_NUMBER = 21
_SHOWN_CHARACTERS = 60
_MOST_REDIRECTS = 10
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Unfit(ValueError):
    """The document is not what its reader expects: too large, not JSON, or without what is needed."""


@dataclass(frozen=True)
class Limits:
    """How much of a document is read: bytes, values, levels, and the seconds that a server may take to send it."""

    size: int = 16 * 1024**2
    items: int = 200_000
    depth: int = 64
    seconds: float = 120.0


LIMITS = Limits()
NO_OTHER_KEYS: ConfigDict = {"extra": "forbid"}
"""As a dataclass's or TypedDict's `__pydantic_config__`: a key that it does not have is an error."""
CHECKED_AGAIN: ConfigDict = {"revalidate_instances": "always"}
"""Likewise: `fit` also checks what was made without it."""


def read_file(path: Path, limits: Limits = LIMITS) -> bytes:
    """The content of a file. Raises OSError, and ValueError for a path that is none, too."""
    with path.open("rb") as stream:
        content = stream.read(limits.size + 1)
    _check_size(len(content), limits)
    return content


def collect(parts: Iterable[bytes], limits: Limits = LIMITS) -> bytes:
    """The parts together, as they come over a network."""
    found, deadline = bytearray(), time.monotonic() + limits.seconds
    for part in parts:
        found += part
        _check_size(len(found), limits)
        if time.monotonic() > deadline:
            raise Unfit(f"it was not complete after {limits.seconds:.0f} seconds")
    return bytes(found)


NO_PROXY = (
    "Correct ALL_PROXY, HTTP_PROXY or HTTPS_PROXY: http://HOST:PORT, with `#`, `?` and `/` of a password as %23, %3F "
    "and %2F."
)
"""What helps where a proxy's address is none."""


def is_loopback(url: str) -> bool:
    """Whether the URL is on this machine, so that proxies of the environment must not be used."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


@contextmanager
def making_client() -> Iterator[None]:
    """For making a client of httpx, which takes proxies and certificates of the environment. Raises PlatformError."""
    import httpx

    try:
        yield
    except ImportError as error:  # of a SOCKS proxy
        hint = (
            "Install it beside the toolkit: pip install 'httpx[socks]'. Or unset ALL_PROXY, HTTP_PROXY and HTTPS_PROXY."
        )
        raise PlatformError(f"nothing can be asked through the proxy of the environment: {error}", hint=hint) from error
    except OSError as error:
        message = f"the certificates of the environment cannot be read: {error.strerror or error}"
        raise PlatformError(message, hint="Correct SSL_CERT_FILE or SSL_CERT_DIR, or unset it.") from error
    except (ValueError, httpx.InvalidURL) as error:
        # Not in httpx's words: they may have a piece of the password.
        raise PlatformError("the proxy of the environment cannot be used: it is no address", hint=NO_PROXY) from error


def connection_hint(error: Exception, otherwise: str) -> str:
    """What helps against an error of httpx; `otherwise` where it is not a certificate that nobody here trusts."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return otherwise
    return (
        "Behind a proxy that opens connections, let SSL_CERT_FILE name a file with your organisation's certificates "
        "(REQUESTS_CA_BUNDLE is not read here)."
    )


def request(
    client: httpx.Client, method: str, url: httpx.URL | str, limits: Limits = LIMITS, **options: Any
) -> httpx.Response:
    """The whole answer to an HTTP request, after redirects. Raises httpx.HTTPError and httpx.InvalidURL too."""
    return read_whole(follow(client, client.build_request(method, url, **options)), limits)


def read_whole(answer: httpx.Response, limits: Limits = LIMITS) -> httpx.Response:
    """Read the body of a streamed answer, up to the limits. Raises Unfit, httpx.HTTPError."""
    import httpx

    try:
        # Packed, a few kilobytes may become gigabytes.
        if encoding := answer.headers.get("Content-Encoding", "identity").lower().replace("identity", ""):
            raise Unfit(f"the server packed it ({encoding[:_SHOWN_CHARACTERS]}), which was not asked for")
        content = collect(answer.iter_bytes(), limits)
    finally:
        answer.close()
    return httpx.Response(answer.status_code, headers=answer.headers, content=content, request=answer.request)


def follow(client: httpx.Client, asked: httpx.Request) -> httpx.Response:
    """The answer behind all redirects, its body still to be read and closed; those of the redirects are never read."""
    import httpx

    asked.headers["Accept-Encoding"] = "identity"
    for _ in range(_MOST_REDIRECTS):
        answer = client.send(asked, stream=True, follow_redirects=False)
        if answer.next_request is None:
            return answer
        answer.close()
        asked = answer.next_request
    raise httpx.TooManyRedirects(f"more than {_MOST_REDIRECTS} redirects", request=asked)


def decode(content: bytes | str, limits: Limits = LIMITS) -> Any:
    """The value of a JSON text: UTF-8, finite numbers, every key once, whole characters."""
    _check_size(len(content), limits)
    try:
        text = content if isinstance(content, str) else content.decode()
        # Each value but the first stands behind one of these; text that has them is counted as if it were values.
        if sum(map(text.count, ",[{")) > limits.items:
            raise Unfit(f"it has more than {limits.items} values")
        value = _DECODER.decode(text)
        _check_depth(value, limits)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise Unfit(f"it is not UTF-8 at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise Unfit("it has half of a surrogate pair (such as \\ud83d), which is not a character") from error
    except json.JSONDecodeError as error:
        raise Unfit(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise Unfit(f"it is nested more than {limits.depth} levels deep") from error
    return value


def parse(model: type[T], content: bytes | str, limits: Limits = LIMITS) -> T:
    """The JSON text as `model`: a pydantic model, a dataclass or a TypedDict."""
    return fit(model, decode(content, limits))


def parse_quickly(model: type[T], content: bytes, limits: Limits = LIMITS) -> T:
    """`parse` for small documents that come by the thousand, at a fifth of the time; the last of equal keys applies."""
    _check_size(len(content), limits)
    try:
        found: T = _adapter(cast(Any, model)).validate_json(content)
    except ValueError as error:
        raise Unfit(_first_problem(cast("ValidationError", error))) from error
    return found


def fit(model: type[T], value: Any) -> T:
    """The value as `model`: the first thing that does not fit is named by its keys."""
    from pydantic import ValidationError

    try:
        found: T = _adapter(cast(Any, model)).validate_python(value)
    except ValidationError as error:
        raise Unfit(_first_problem(error)) from error
    return found


def is_day(text: str) -> bool:
    """Whether the text is a day as `2026-11-22`."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


class Members(dict[str, Any]):
    """An object of a document. A key that it lacks is an error with the document's name and the way to it."""

    def __init__(
        self, members: Any = (), name: str = "", path: str = "", error: Callable[[str], Exception] = KeyError
    ) -> None:
        super().__init__(members)
        self._name, self._path, self._error = name, path, error

    def __missing__(self, key: str) -> NoReturn:
        raise self._error(f"{self._name} lacks `{self._path}{key}`")


def named(value: Any, name: str, error: Callable[[str], Exception], path: str = "") -> Any:
    """The value, with objects that raise `error` for a key that they lack. Only of what is known not to be deep."""
    if isinstance(value, dict):
        members = {key: named(inner, name, error, f"{path}{key}.") for key, inner in value.items()}
        return Members(members, name, path, error)
    if isinstance(value, list):
        return [named(inner, name, error, f"{path}{index}.") for index, inner in enumerate(value)]
    return value


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def _first_problem(error: ValidationError) -> str:
    first, *others = error.errors(include_url=False, include_context=False)
    keys = ".".join(str(key) for key in first["loc"])
    objects = ("dataclass_type", "dict_type", "mapping_type", "model_type")
    message = "should be an object" if first["type"] in objects else first["msg"][0].lower() + first["msg"][1:]
    found = "" if first["type"] == "missing" else f", not {repr(first['input'])[:_SHOWN_CHARACTERS]}"
    more = f" (and {len(others)} more)" if others else ""
    return f"{f'`{keys}`: ' if keys else ''}{message}{found}{more}"


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.size:
        raise Unfit(f"it is larger than {limits.size} bytes")


def _check_depth(value: Any, limits: Limits) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limits.depth):
        if not level:
            return
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    raise RecursionError


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Unfit(f"the key {twice[:_SHOWN_CHARACTERS]!r} stands twice in one object")
    return found


def _whole_number(text: str) -> int:
    if len(text) > _LONGEST_WHOLE_NUMBER:
        raise Unfit(f"the number {text[:_LONGEST_WHOLE_NUMBER]}… has {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Unfit(f"the number {text[:_SHOWN_CHARACTERS]} is too large")
    return number


def _refuse(constant: str) -> NoReturn:
    raise Unfit(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole_number, parse_float=_number, parse_constant=_refuse
)
