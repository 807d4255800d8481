"""What a build found out about a base, repeated by `toolkit check`: each finding, from what was kept."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

import toolkit
from toolkit.images.kept import keep_facts
from toolkit.images.preflight import Base, BaseFacts, Distribution
from toolkit.images.wheels import Wheel, kept_wheels, wheels_key

DIGEST = f"sha256:{'a' * 64}"
HOLDS = BaseFacts("3.12", "glibc 2.34", True, ("root",), (Distribution("Numpy", "2.1", ()),))
BASE = Base("base", 3, (), HOLDS)
WHEEL = Wheel("little", "1.0", "little-1.0-py3-none-any.whl", "0" * 64, ("numpy>=2",))
TINY = toolkit.load("tiny/p-eagle").path


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def found(
    folder: Path, base: Base = BASE, wheel: Wheel = WHEEL, section: str = "", dockerfile: str = ""
) -> list[tuple[str, str]]:
    """Codes and severities."""
    keep_facts(DIGEST, asdict(base))
    pin = f"{wheel.name}=={wheel.version}"
    keep_facts(wheels_key([pin], "3.12"), {"wheels": [asdict(wheel)]})
    (folder / "fragment").write_text(dockerfile)
    section += ", dockerfile: fragment" if dockerfile else ""
    container = f"container: {{base: 'example.com/base@{DIGEST}', wheels: [{pin}]{section}}}"
    text = TINY.read_text().replace("./", f"{TINY.parent}/")
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        text.replace("platform: {name: local}", f"platform: {{name: local, run: container}}\n{container}")
    )
    findings = toolkit.check(recipe).findings
    return [(one.code, one.severity) for one in findings if one.code.startswith("base.")]


def test_packages_that_fit_are_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    assert found(tmp_path, replace(BASE, holds=None)) == []


@pytest.mark.parametrize(
    ("code", "severity", "base", "wheel"),
    [
        ("base.layers", "error", replace(BASE, layers=125), WHEEL),
        ("base.python", "error", replace(BASE, holds=replace(HOLDS, python=None)), WHEEL),
        ("base.python", "error", replace(BASE, holds=replace(HOLDS, python="3.10")), WHEEL),
        ("base.python", "warning", replace(BASE, holds=replace(HOLDS, python="")), WHEEL),
        ("base.python", "error", replace(BASE, holds=replace(HOLDS, has_env=False)), WHEEL),
        ("base.wheel", "error", BASE, replace(WHEEL, file="little-1.0-cp312-cp312-manylinux_2_35_x86_64.whl")),
        ("base.requirement", "error", BASE, replace(WHEEL, requires=("missing",))),
        ("base.requirement", "warning", BASE, replace(WHEEL, requires=("numpy<2",))),
        ("base.shadowed", "warning", BASE, replace(WHEEL, name="numpy", requires=())),
        ("base.unread", "info", replace(BASE, holds=None, is_packed_otherwise=True), WHEEL),
    ],
)
def test_each_finding(code: str, severity: str, base: Base, wheel: Wheel, tmp_path: Path) -> None:
    assert found(tmp_path, base, wheel) == [(code, severity)]


def test_a_base_with_triggers_is_built_here(tmp_path: Path) -> None:
    assert found(tmp_path, replace(BASE, triggers=("RUN make",))) == []


def test_what_the_dockerfile_may_install_is_a_warning(tmp_path: Path) -> None:
    missing = replace(WHEEL, requires=("missing",))
    assert found(tmp_path, wheel=missing, dockerfile="RUN pip install missing\n") == [("base.requirement", "warning")]
    assert found(tmp_path, wheel=missing, dockerfile="ENV A=b\n") == [("base.requirement", "error")]
    assert found(tmp_path, dockerfile="USER server\n") == [("base.user", "error")]
    assert found(tmp_path, dockerfile="USER root\n") == []


def test_layers_are_counted_as_the_builder_makes_them(tmp_path: Path) -> None:
    base = replace(BASE, layers=124)
    assert found(tmp_path, base) == []
    assert found(tmp_path, base, dockerfile="RUN a\n", section=", builder: buildah") == []
    assert found(tmp_path, base, dockerfile="RUN a\n", section=", builder: docker") == [("base.layers", "error")]


def test_what_was_kept_by_another_version_says_nothing(tmp_path: Path) -> None:
    keep_facts(wheels_key(["little==1.0"], "3.12"), {"something": "else"})
    assert kept_wheels(["little==1.0"], "3.12") is None
