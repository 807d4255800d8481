"""How long nothing has been asked of the local platform, by which it ends."""

from __future__ import annotations

from typing import Any

from werkzeug.test import create_environ, run_wsgi_app
from werkzeug.wrappers import Response

from toolkit.platforms.local.presence import Activity


def test_it_is_idle_between_requests_and_not_during_one() -> None:
    now = 100.0
    activity = Activity(lambda: now)
    during = []

    def application(environ: Any, start_response: Any) -> Any:
        during.append(activity.idle_seconds())
        return Response("")(environ, start_response)

    now = 130.0
    assert activity.idle_seconds() == 30
    run_wsgi_app(activity.count_wsgi(application), create_environ())
    assert during == [0]
    now = 135.0
    assert activity.idle_seconds() == 5
