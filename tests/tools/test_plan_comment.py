"""Which comment of a pull request the Action renews: the step is run, and a server stands for GitHub's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_github_action import run_step

BOT = "github-actions[bot]"
WORKFLOW = "acme/llm/.github/workflows/endpoint.yml"
MARK = f"<!-- toolkit plan: {WORKFLOW} recipes/chat.yaml -->"


class PullRequest:
    """The comments of pull request 7 of acme/llm. With `status` it takes none."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.status = 200
        self.keys: set[str | None] = set()
        self.url = ""

    def add(self, body: str, author: str | None = BOT) -> None:
        user = {"login": author} if author else None
        self.comments.append({"id": 100 + len(self.comments), "user": user, "body": body})

    @property
    def bodies(self) -> list[str]:
        return [item["body"] for item in self.comments]


@pytest.fixture
def pull() -> Iterator[PullRequest]:
    found = PullRequest()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            page, size = int(query["page"][0]), int(query["per_page"][0])
            self._end(200, found.comments[(page - 1) * size : page * size])

        def do_POST(self) -> None:
            assert self.path == "/api/v3/repos/acme/llm/issues/7/comments"
            if found.status == 200:
                found.add(self._body())
            self._end(found.status, {})

        def do_PATCH(self) -> None:
            prefix, _, number = self.path.rpartition("/")
            assert prefix == "/api/v3/repos/acme/llm/issues/comments"
            (item,) = [item for item in found.comments if item["id"] == int(number)]
            item["body"] = self._body()
            self._end(200, {})

        def _body(self) -> str:
            return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

        def _end(self, status: int, data: object) -> None:
            found.keys.add(self.headers["Authorization"])
            answer = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/api/v3"
        yield found
        server.shutdown()
        thread.join()


def comment(
    pull: PullRequest, folder: Path, plan: str, recipe: str = "recipes/chat.yaml", workflow: str = WORKFLOW
) -> str:
    """What the step says."""
    (folder / "plan.md").write_text(plan, encoding="utf-8")
    done = run_step(
        "Comment",
        folder,
        recipe,
        GH_TOKEN="a-token",
        PULL="7",
        GITHUB_API_URL=pull.url,
        GITHUB_REPOSITORY="acme/llm",
        GITHUB_WORKFLOW_REF=f"{workflow}@refs/pull/7/merge",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_plan_is_a_new_comment_and_the_next_renews_it(pull: PullRequest, tmp_path: Path) -> None:
    assert comment(pull, tmp_path, "### Plan\none") == ""
    comment(pull, tmp_path, "### Plan\ntwo")
    assert pull.bodies == [f"{MARK}\n### Plan\ntwo"]
    assert pull.keys == {"Bearer a-token"}


def test_each_recipe_of_each_workflow_has_its_own(pull: PullRequest, tmp_path: Path) -> None:
    for recipe, workflow in [("a.yaml", WORKFLOW), ("b.yaml", WORKFLOW), ("a.yaml", f"{WORKFLOW}.other.yml")]:
        comment(pull, tmp_path, "first", recipe, workflow)
    comment(pull, tmp_path, "second", "a.yaml")
    assert [body.splitlines()[1] for body in pull.bodies] == ["second", "first", "first"]


def test_comments_of_others_stay_as_they_are(pull: PullRequest, tmp_path: Path) -> None:
    """Of another workflow's last comment, of the mark in somebody else's, and of one that was quoted."""
    pull.add(f"{MARK}\nmine", "mallory")
    pull.add(f"{MARK}\nof an account that is gone", None)
    pull.add(f"> {MARK}\nquoted")
    pull.add("coverage: 93 %")
    before = pull.bodies
    comment(pull, tmp_path, "plan")
    assert pull.bodies == [*before, f"{MARK}\nplan"]


@pytest.mark.parametrize("earlier", [99, 100, 250])
def test_it_is_found_behind_many_others(pull: PullRequest, tmp_path: Path, earlier: int) -> None:
    for number in range(earlier):
        pull.add(f"comment {number}", "someone")
    pull.add(f"{MARK}\r\nold")
    comment(pull, tmp_path, "new")
    assert pull.bodies[earlier:] == [f"{MARK}\nnew"]


def test_a_name_cannot_leave_the_mark(pull: PullRequest, tmp_path: Path) -> None:
    comment(pull, tmp_path, "plan", "a --> # b\n.yaml")
    (body,) = pull.bodies
    assert body == f"<!-- toolkit plan: {WORKFLOW} a%20--%3E%20%23%20b%0A.yaml -->\nplan"


def test_a_plan_that_is_too_long_for_a_comment_is_cut(pull: PullRequest, tmp_path: Path) -> None:
    comment(pull, tmp_path, "    line\n" * 10_000)
    (body,) = pull.bodies
    assert len(body) == 65_536
    assert body.endswith("\n\nThe rest is in the run's summary.\n")


def test_a_token_that_may_not_comment_fails_nothing(pull: PullRequest, tmp_path: Path) -> None:
    pull.status = 403
    said = comment(pull, tmp_path, "plan")
    assert said.startswith("::notice::the plan is in the summary, and in no comment: Client error '403 Forbidden'")
    assert "a-token" not in said
