"""Cards under JupyterLab's own style sheet, in a real browser: what JupyterLab 4.6 and nbconvert 7 would spoil."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from chromium import browser

from toolkit.display import bullets, card, in_tone, table

# The rules of @jupyterlab/rendermime that are stronger than a class and an element.
JUPYTER = """<style>
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td, :not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th,
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon tr { text-align: right; vertical-align: middle; padding: .5em; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: rgb(1, 2, 3); }
</style>"""
SCRIPT = """<pre id=said></pre><script>
const said = [...document.querySelectorAll("[data-jp-theme-light]")].map(theme => {
  const style = (selector) => getComputedStyle(theme.querySelector(selector));
  return [style("td").textAlign, style("td").verticalAlign, style("tr").backgroundColor, style("td span").color];
});
document.getElementById("said").textContent = JSON.stringify(said);
</script>"""


def test_a_card_keeps_its_own_look_in_both_themes(tmp_path: Path) -> None:
    shown = card("plan", table([(in_tone("+ create", "good"), "Model")]), bullets(["2.80 $/h, 3.76 $/h"]))
    themes = "".join(
        f'<div data-jp-theme-light="{light}"><div class="jp-RenderedHTMLCommon">{shown}</div></div>'
        for light in ("true", "false")
    )
    with browser(f"<!doctype html>{JUPYTER}{themes}{SCRIPT}", tmp_path) as opened:
        document = opened.document()
    found = re.search(r'<pre id="said">(.+?)</pre>', document)
    assert found, "the page came to its end"
    nothing = "rgba(0, 0, 0, 0)"
    light, dark = json.loads(html.unescape(found[1]))
    assert light == ["left", "top", nothing, "rgb(26, 127, 75)"]
    assert dark == ["left", "top", nothing, "rgb(63, 181, 122)"]


def test_prices_are_no_formulas() -> None:
    """MathJax makes one of what stands between two dollar signs, except in an element with its class."""
    assert '<div class="toolkit mathjax_ignore tex2jax_ignore">' in card("fits", bullets(["2.80 $/h, 3.76 $/h"]))
