"""Objects in a notebook as HTML: tables and cards that need neither script nor network, legible in light and dark.

Colours are Jupyter's own where it sets them, so that they follow its theme, and else those the browser prefers. No
meaning rests on a colour alone: a notebook that is not trusted, or is shown on GitHub, is shown without style.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from toolkit.errors import UsageError
from toolkit.text import html

Tone = Literal["good", "bad", "fair", "soft"]

_STYLE = """<style>
.toolkit { --tk-ink: var(--jp-content-font-color1, #1c2330); --tk-soft: var(--jp-content-font-color2, #5b6575);
  --tk-line: var(--jp-border-color2, #d5dae2); --tk-good: #1a7f4b; --tk-bad: #c0392b; --tk-fair: #a86400;
  color: var(--tk-ink); font-size: 13px; line-height: 1.45; max-width: 980px; }
@media (prefers-color-scheme: dark) { .toolkit { --tk-ink: var(--jp-content-font-color1, #e8ecf2);
  --tk-soft: var(--jp-content-font-color2, #a0aaba); --tk-line: var(--jp-border-color2, #38414f); } }
@media (prefers-color-scheme: dark) { .toolkit { --tk-good: #3fb57a; --tk-bad: #f0766a; --tk-fair: #e0a030; } }
[data-jp-theme-light="true"] .toolkit { --tk-good: #1a7f4b; --tk-bad: #c0392b; --tk-fair: #a86400; }
[data-jp-theme-light="false"] .toolkit { --tk-good: #3fb57a; --tk-bad: #f0766a; --tk-fair: #e0a030; }
.toolkit-head { border-left: 5px solid var(--tk-line); padding: 1px 10px; margin: 4px 0; }
.toolkit-head b { font-size: 15px; }
.toolkit-head-good { border-color: var(--tk-good); } .toolkit-head-bad { border-color: var(--tk-bad); }
.toolkit-head-fair { border-color: var(--tk-fair); }
.toolkit table { border-collapse: collapse; margin: 6px 0; color: inherit; }
.toolkit tr { background: none !important; border-bottom: 1px solid var(--tk-line); }
.toolkit th, .toolkit td { text-align: left !important; vertical-align: top !important; padding: 2px 14px 2px 0; }
.toolkit th { color: var(--tk-soft); font-weight: 500; white-space: nowrap; }
.toolkit td:first-child { white-space: nowrap; }
.toolkit h2 { font-size: 15px !important; font-weight: 600; margin: 10px 0 2px; }
.toolkit ul { margin: 4px 0; padding-left: 20px; color: var(--tk-soft); }
.toolkit pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 4px 0; color: inherit; font-size: 12px; }
.toolkit summary { color: var(--tk-soft); cursor: pointer; }
.toolkit-good { color: var(--tk-good); } .toolkit-bad { color: var(--tk-bad); }
.toolkit-fair { color: var(--tk-fair); } .toolkit-soft { color: var(--tk-soft); }
.toolkit-whole { white-space: nowrap; }
</style>"""


_FEW = 20

# For MathJax 3 (JupyterLab) and 2 (nbconvert): what stands between two prices in `$` is no formula.
_NO_FORMULAS = "mathjax_ignore tex2jax_ignore"


class Fragment(str):
    """HTML of this module: what is in it is escaped already."""

    __slots__ = ()


def card(title: object, *parts: Fragment, says: object = "", tone: Tone = "soft") -> str:
    """An object's HTML: its title, what is said of it, and the parts below."""
    head = f'<div class="toolkit-head toolkit-head-{tone}"><b>{_cell(title)}</b> {_cell(says)}</div>'
    return box(Fragment(head), *parts)


def box(*parts: Fragment) -> str:
    """Parts in the style of a card, without a title."""
    return f'<div class="toolkit {_NO_FORMULAS}">{_STYLE}{"".join(parts)}</div>'


def in_tone(text: object, tone: Tone) -> Fragment:
    """Text in a colour; a few words stay on one line."""
    few = " toolkit-whole" if len(str(text)) <= _FEW else ""
    return Fragment(f'<span class="toolkit-{tone}{few}">{html(text)}</span>')


def on_one_line(text: object) -> Fragment:
    """Text that stays on one line."""
    return Fragment(f'<span class="toolkit-whole">{html(text)}</span>')


def prose(*sentences: object) -> Fragment:
    """Sentences, each on a line of its own."""
    return Fragment("".join(f"<div>{_cell(sentence)}</div>" for sentence in sentences))


def verbatim(text: object) -> Fragment:
    """Text whose blanks and line ends are kept."""
    return Fragment(f"<pre>{_cell(text)}</pre>")


def table(rows: Iterable[Iterable[object]], head: Sequence[object] = ()) -> Fragment:
    """A table of values as text."""
    return Fragment(f"<table>{_row(head, 'th') if head else ''}{''.join(_row(row, 'td') for row in rows)}</table>")


def facts(rows: Iterable[tuple[str, object]]) -> Fragment:
    """A table of names and their values, without the values that are empty."""
    shown = [
        f"<tr><th>{html(name)}</th><td>{_cell(value)}</td></tr>" for name, value in rows if value not in ("", None)
    ]
    return Fragment(f"<table>{''.join(shown)}</table>")


def bullets(items: Iterable[object]) -> Fragment:
    """A list of values as text; nothing for an empty one."""
    shown = "".join(f"<li>{_cell(item)}</li>" for item in items)
    return Fragment(f"<ul>{shown}</ul>" if shown else "")


def fold(summary: object, content: str) -> Fragment:
    """What is shown when its summary is clicked; nothing if it is empty."""
    shown = content if isinstance(content, Fragment) else verbatim(content)
    return Fragment(f"<details><summary>{html(summary)}</summary>{shown}</details>" if content else "")


def minutes(seconds: float) -> str:
    """Minutes and seconds, as in 2:10."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def dollars_per_hour(price: float | None) -> str:
    """A price per hour in US dollars."""
    return "no price: see toolkit plan" if price is None else f"{price:.2f} $/h"


def data_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame with a column for each key, for those who have pandas. Raises UsageError without it."""
    try:
        import pandas
    except ImportError as error:
        raise UsageError("a DataFrame needs the package pandas", hint="Run: pip install pandas") from error
    return pandas.DataFrame(list(rows))


def _row(cells: Iterable[object], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_cell(cell)}</{tag}>' for cell in cells)}</tr>"


def _cell(value: object) -> str:
    return value if isinstance(value, Fragment) else html(value)
