"""The page of a report in a real browser: it asks for nothing, runs nothing, and is right in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest
from chromium import ADDRESS, Browser, browser
from hostile import HOSTILE, obeyed
from PIL import Image
from reports import example, with_text

from toolkit.measure.page import page_html

MARKUP = "<script>document.title = 'obeyed'; console.error('loud')</script><img src=http://evil.example/x>"
ATTACK = f"{HOSTILE}</svg></style></title>{MARKUP}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(page_html(example()), tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def test_figures_are_there_and_nothing_is_asked_for(shown: Browser) -> None:
    document = shown.document()
    assert document.count("<svg") == 7
    assert set(shown.asked) == {f"GET {ADDRESS}"}
    assert shown.console == []


def brightness(picture: Image.Image, x: int, y: int) -> int:
    return sum(picture.getpixel((x, y)))  # type: ignore[arg-type, misc]


def greens(picture: Image.Image) -> list[tuple[int, int, int]]:
    """The colours of the left edge of the verdict's frame."""
    pixels = [picture.getpixel((x, 100)) for x in range(40, 70)]
    return [pixel for pixel in pixels if isinstance(pixel, tuple) and pixel[1] > pixel[0] + 50]  # type: ignore[misc]


def test_the_first_screen_shows_the_answer_in_light_and_dark(shown: Browser) -> None:
    light, dark = shown.picture(), shown.picture(dark=True)
    assert brightness(light, 5, 5) > 3 * 230
    assert brightness(dark, 5, 5) < 3 * 40
    for picture in (light, dark):
        assert len(greens(picture)) >= 8, "the verdict's frame is green"
    assert shown.console == []


def test_an_attack_in_every_text_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    page = page_html(with_text(ATTACK))
    assert obeyed(page.replace("\n", "")) == []
    with browser(page, tmp_path) as opened:
        document = opened.document()
    assert "<title>obeyed" not in document
    assert "<img" not in document
    assert "<script" not in document
    assert escape("<img src=http://evil.example/x>") in document, "it is shown as text"
    assert opened.asked == [f"GET {ADDRESS}"]
    assert opened.console == []


def test_this_browser_would_tell(tmp_path: Path) -> None:
    """What the other tests look for happens on a page without escapes."""
    with browser(f"<title>page</title>{MARKUP}", tmp_path) as opened:
        document = opened.document()
    assert "<title>obeyed" in document
    assert "GET http://evil.example/x" in opened.asked
    assert any("loud" in line for line in opened.console)


def test_even_markup_that_slipped_through_could_load_and_run_nothing(tmp_path: Path) -> None:
    """The page's own policy forbids it."""
    page = page_html(example()).replace("</main>", f"{MARKUP}</main>")
    with browser(page, tmp_path) as opened:
        document = opened.document()
    assert "<script" in document
    assert "<title>obeyed" not in document
    assert opened.asked == [f"GET {ADDRESS}"]
