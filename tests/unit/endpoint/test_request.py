"""Options of a chat request: known ones are sent, others refused with the nearest name."""

from __future__ import annotations

import pytest

from toolkit.endpoint.request import chat_body
from toolkit.errors import UsageError


def test_a_mistyped_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no option `max_token`\n  Did you mean `max_tokens`\?"):
        chat_body("hi", {"max_token": 2})
    with pytest.raises(UsageError, match=r"no option `zzz`\n  For a field of the engine's own"):
        chat_body("hi", {"zzz": 2})


def test_known_options_and_the_engines_own_are_sent() -> None:
    body = chat_body("hi", {"max_tokens": 2, "extra_body": {"cache_salt": "a"}})
    assert (body["max_tokens"], body["cache_salt"]) == (2, "a")
    assert "extra_body" not in body


def test_a_notebook_shows_an_error_without_lines_of_code() -> None:
    shown = UsageError("no such thing", hint="Try another.")._render_traceback_()
    assert shown == ["UsageError: no such thing\n  Try another."]
