"""Writes a plan into the pull request's comment that this workflow has for this recipe, or into a new one.

The comment is known by a mark that no reader sees and by its author: others write as github-actions[bot] too, and
anybody may write the mark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from urllib.parse import quote

import httpx

AUTHOR = "github-actions[bot]"
PAGE = 100
LONGEST = 65_536
_CUT = "\n\nThe rest is in the run's summary.\n"


def main() -> None:
    """Post the file that the command line names. A token that may not, as a fork's, is no failure of the plan."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    headers = {"Authorization": f"Bearer {os.environ['GH_TOKEN']}", "Accept": "application/vnd.github+json"}
    try:
        with httpx.Client(base_url=os.environ["GITHUB_API_URL"], headers=headers, timeout=30.0) as client:
            post(client, os.environ, text)
    except httpx.HTTPError as error:
        print(f"::notice::the plan is in the summary, and in no comment: {str(error).splitlines()[0]}")


def post(client: httpx.Client, environment: Mapping[str, str], text: str) -> None:
    """Renew the comment, or write the first one. Raises httpx.HTTPError."""
    issues = f"/repos/{environment['GITHUB_REPOSITORY']}/issues"
    comments = f"{issues}/{environment['PULL']}/comments"
    first = mark(environment["GITHUB_WORKFLOW_REF"], environment["RECIPE"])
    whole = f"{first}\n{text}"
    body = whole if len(whole) <= LONGEST else whole[: LONGEST - len(_CUT)] + _CUT
    found = find(client, comments, first)
    if found is None:
        client.post(comments, json={"body": body}).raise_for_status()
    else:
        client.patch(f"{issues}/comments/{found}", json={"body": body}).raise_for_status()


def mark(workflow: str, recipe: str) -> str:
    """The comment's first line. `workflow` is its file with the branch, of which the mark does not depend."""
    return f"<!-- toolkit plan: {quote(workflow.partition('@')[0])} {quote(recipe)} -->"


def find(client: httpx.Client, comments: str, first: str) -> int | None:
    """The number of the comment that begins with this line."""
    for page in count(1):
        listed = client.get(comments, params={"per_page": PAGE, "page": page}).raise_for_status().json()
        for item in listed:
            if (item["user"] or {}).get("login") == AUTHOR and item["body"].splitlines()[:1] == [first]:
                return int(item["id"])
        if len(listed) < PAGE:
            break
    return None


if __name__ == "__main__":
    main()
