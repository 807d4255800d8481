"""A report as one page of HTML that needs nothing else, neither network nor script: to mail, to keep or to print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.display import bullets
from toolkit.errors import MissingPackage, UsageError
from toolkit.measure.break_even import break_even_in_words
from toolkit.measure.headline import CLAIMS, Answer, Headline, best_point, comparable, headline, prices_at, speedup_of
from toolkit.measure.measurement import Verdict
from toolkit.measure.report import BenchReport, figures_html, what_if_html
from toolkit.measure.wording import LEGEND, load_in_words, ratio, small_print
from toolkit.text import html

if TYPE_CHECKING:
    from toolkit.measure.figures import Figure

_CLASSES: dict[Answer, str] = {"yes": "yes", "no": "no", "mixed": "mixed", "not shown": "unclear"}
_MARKS = {True: ("yes", "✔"), False: ("no", "✘"), None: ("unclear", "?")}

# `default-src 'none'`: whatever a text in the report says, a browser loads and runs nothing.
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<meta name="generator" content="toolkit">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>{style}</style></head><body><main>
{body}
</main></body></html>
"""

_OURS = b'<meta name="generator" content="toolkit">'
_HEAD_BYTES = 4096

_STYLE = """
:root { --paper: #ffffff; --card: #f6f7f9; --ink: #1c2330; --soft: #5b6575; --line: #d5dae2;
  --pays: #1a7f4b; --costs: #c0392b; --unclear: #7d8695; --mixed: #a86400; --on-colour: #ffffff;
  --arm-0: #7d8695; --arm-1: #0072b2; --arm-2: #d55e00; --arm-3: #009e73; --arm-4: #a6508b; --arm-5: #b38600;
  --arm-6: #3b9bd1; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161d; --card: #1b212b; --ink: #e8ecf2; --soft: #a0aaba;
  --line: #38414f; --pays: #3fb57a; --costs: #f0766a; --unclear: #8c96a6; --mixed: #e0a030; --on-colour: #0b0e13;
  --arm-0: #98a2b3; --arm-1: #56b4e9; --arm-2: #ff9248; --arm-3: #35c79b; --arm-4: #e08fc6; --arm-5: #f0c840;
  --arm-6: #9fd3f5; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 1180px; margin: 0 auto; padding: 20px 24px 60px; }
header { border-left: 10px solid var(--answer); background: var(--card); border-radius: 8px; padding: 14px 22px; }
h1 { color: var(--answer); font-size: 32px; line-height: 1.2; margin: 2px 0 8px; }
h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 2px 0; }
.soft, figcaption { color: var(--soft); font-size: 13px; }
.yes { --answer: var(--pays); } .no { --answer: var(--costs); } .mixed { --answer: var(--mixed); }
.unclear { --answer: var(--unclear); }
.row { display: flex; flex-wrap: wrap; gap: 16px; margin-top: 16px; align-items: stretch; }
.tile, .checked, figure { background: var(--card); border-radius: 8px; padding: 12px 18px; margin: 0; }
.tile { flex: 1 1 150px; } .tile b { display: block; font-size: 28px; line-height: 1.2; }
figure { flex: 1 1 480px; min-width: 0; }
svg { max-width: 100%; height: auto; display: block; margin-top: 6px; overflow: visible; }
.checked { flex: 1 1 380px; } .checked ul { list-style: none; margin: 4px 0 0; padding: 0; }
.checked li { margin: 4px 0; } .checked b { color: var(--answer); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); gap: 16px; }
section { margin-top: 28px; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 12px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
"""


def require_packages() -> None:
    """Raise MissingPackage where the packages that draw the figures are not installed."""
    try:
        import toolkit.measure.figures  # noqa: F401
    except ImportError as error:
        raise MissingPackage(f"an HTML report needs the package {error.name}", extra="bench") from error


def require_free(path: Path) -> None:
    """Raise UsageError for a file that is there and is no report: it shall not be lost by a slip of the hand."""
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as stream:
        if _OURS not in stream.read(_HEAD_BYTES):
            raise UsageError(
                f"{path} exists, and is not a report of the toolkit", hint="Name another file, or remove it."
            )


def page_html(report: BenchReport) -> str:
    """The page. Raises MissingPackage where the packages that draw the figures are not installed."""
    require_packages()
    from toolkit.measure.figures import break_even_map, figures

    short = headline(report)
    valid = comparable(report)
    break_even = _figure(break_even_map(report), break_even_in_words(report.speedups)) if valid else ""
    body = (
        _banner(report, short),
        f'<div class="row">{_tiles(report) if valid else ""}</div>',
        f'<div class="row">{_verdicts(report.verdicts)}{break_even}</div>',
        f'<section class="figures">{"".join(map(_figure, figures(report)))}</section>',
        f"<section>{what_if_html(report)}</section>",
        f'<section><h2>All figures</h2><div class="scroll">{figures_html(report)}</div>{_soft(LEGEND)}</section>',
        f"<section><h2>How it was measured</h2>{bullets(small_print(report))}</section>",
    )
    title = html(f"{report.title}: {short.title}")
    return _PAGE.format(title=title, style=_STYLE, body="\n".join(body))


def _banner(report: BenchReport, short: Headline) -> str:
    said = "".join(f"<p>{html(sentence)}</p>" for sentence in short.sentences)
    name = f'<div class="soft">{html(report.title)}</div>'
    return f'<header class="{_CLASSES[short.answer]}">{name}<h1>{html(short.title)}</h1>{said}</header>'


def _tiles(report: BenchReport) -> str:
    """The numbers at the point where speculation pays most, and the noise."""
    tiles = []
    if best := best_point(report):
        tiles.append((ratio(best.ratio), f"as fast as without speculation: {best.workload}, {load_in_words(best)}"))
        arm = next((arm for arm in report.arms if speedup_of(report, arm) == best), None)
        if arm and arm.acceptance_length:
            tiles.append((f"{arm.acceptance_length:.2f}", "tokens per target step (acceptance length)"))
        if prices := prices_at(report, best):
            tiles.append((prices[0], f"per million output tokens, instead of {prices[1]}"))
    if report.noise:
        tiles.append(
            (f"{ratio(report.noise.low)} to {ratio(report.noise.high)}", "the baseline against itself: the noise")
        )
    return "".join(f'<div class="tile"><b>{html(number)}</b>{html(words)}</div>' for number, words in tiles)


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    items = "".join(map(_verdict, verdicts))
    return f'<div class="checked"><h2>What was checked</h2><ul>{items}</ul></div>' if items else ""


def _verdict(verdict: Verdict) -> str:
    css, mark = _MARKS[verdict.holds]
    claim = CLAIMS[verdict.claim] + (f": {verdict.workload}" if verdict.workload else "")
    return f'<li class="{css}"><b>{mark} {html(claim)}</b><br>{html(verdict.detail)}</li>'


def _figure(figure: Figure | None, below: Sequence[str] = ()) -> str:
    if figure is None:
        return ""
    words = f"<h2>{html(figure.title)}</h2><figcaption>{html(figure.caption)}</figcaption>"
    return f"<figure>{words}{figure.svg}{''.join(f'<p>{html(sentence)}</p>' for sentence in below)}</figure>"


def _soft(lines: Iterable[str]) -> str:
    return f'<p class="soft">{html("; ".join(lines))}</p>'
