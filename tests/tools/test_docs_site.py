"""The documentation site: every link and anchor is checked, everything is described, and no other host is asked."""

from __future__ import annotations

import logging
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import toolkit
from toolkit import errors
from toolkit.apply.causes import words
from toolkit.catalog import lookup
from toolkit.checks.codes import codes
from toolkit.cli.help import GROUPS
from toolkit.recipe.assemble import json_schema
from toolkit.recipe.known import catalogue
from toolkit.registry import recipe_schema

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "srcset", "video": "src"}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def text(site: Path, page: str) -> str:
    """What a reader sees of a page."""
    found = Texts()
    found.feed((site / f"{page}.html").read_text(encoding="utf-8"))
    return " ".join("".join(found.texts).split())


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address:
            self.loaded.append(address)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(catalogue()) + 30
    for path in pages:
        page = Texts()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.loaded
        assert [address for address in page.loaded if re.match(r"(\w+:)?//", address)] == [], path.name
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", path.read_text(encoding="utf-8")) == []


def test_every_picture_is_shown_in_light_and_dark(site: Path) -> None:
    """mkdocs does not look at the links of pictures that are chosen by colour scheme."""
    shown = set()
    for path in site.rglob("*.html"):
        page = Texts()
        page.feed(path.read_text(encoding="utf-8"))
        shown |= {(path.parent / address).resolve() for address in page.loaded if "pictures/" in address}
    assert shown == {path.resolve() for path in (site / "pictures").iterdir()}
    of_screens = {path.name for path in shown if path.suffix == ".png"}  # drawings have no background
    assert {name.replace("-dark.", "-light.") for name in of_screens} == {
        name for name in of_screens if "-light." in name
    }


def test_every_command_is_described(site: Path) -> None:
    page = text(site, "reference/commands")
    for name in [name for names in GROUPS.values() for name in names]:
        assert f"toolkit {name}¶" in page
    assert "--no-prove" in page
    assert "toolkit local stop¶" in page


def test_every_key_of_a_recipe_is_described(site: Path) -> None:
    page = text(site, "reference/recipe")
    schema = json_schema(recipe_schema())
    sections = [schema, *schema["$defs"].values()]
    for fields in (fields for section in sections for fields in section.get("properties", {}).values()):
        assert " ".join(fields.get("description", "").replace("`", "").split()) in page
    for key in (key for section in sections for key in section.get("properties", {})):
        assert f" {key} " in page


def test_every_public_name_is_described_with_its_arguments(site: Path) -> None:
    page = text(site, "reference/python")
    for name in toolkit.__all__:
        heading = f"toolkit.errors.{name}" if hasattr(errors, name) else f"toolkit.{name}¶"
        assert heading in page
    assert "toolkit.plan( recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False" in page
    assert "Endpoint.connect_info¶" in page
    assert "MissingPackage" in page


def test_every_check_and_every_cause_is_described(site: Path) -> None:
    checks, causes = text(site, "reference/checks"), text(site, "reference/causes")
    for code in codes():
        assert f" {code}¶" in checks
    for cause in [*words().log, *words("sagemaker").reasons, *words("kubernetes").reasons]:
        assert f" {cause.code} " in causes


def test_the_catalogue_is_there(site: Path) -> None:
    heads, instances = text(site, "reference/heads"), text(site, "reference/instances")
    for head in lookup.heads():
        assert f" {head.repo}¶" in heads
    for instance in lookup.instances():
        assert f" {instance.name} " in instances
    for name in catalogue():
        assert (site / f"reference/recipes/{name}.html").is_file()


def test_a_broken_link_or_anchor_ends_the_build(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[one](missing.md) and [two](#nowhere)")
    settings = {"docs_dir": str(docs), "site_dir": str(tmp_path / "site"), "nav": [{"Start": "index.md"}], "hooks": []}
    config = load_config(str(ROOT / "mkdocs.yml"), **settings)
    with caplog.at_level(logging.WARNING), pytest.raises(Abort):
        build(config)
    assert "missing.md" in caplog.text
    assert "#nowhere" in caplog.text
