"""A report as one page of HTML that needs nothing else, neither network nor script: to mail, to keep or to print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from toolkit.display import Fragment, bullets
from toolkit.errors import MissingPackage, UsageError
from toolkit.measure.break_even import break_even_in_words
from toolkit.measure.headline import CLAIMS, Answer, Headline, best_point, comparable, headline, prices_at, speedup_of
from toolkit.measure.measurement import Measurement, Verdict
from toolkit.measure.tables import figures_html, opinions_html, saturation_html, what_if_html
from toolkit.measure.wording import LEGEND, load_in_words, ratio, small_print
from toolkit.text import html

if TYPE_CHECKING:
    from toolkit.measure.figures import Figure

_CLASSES: dict[Answer, str] = {"yes": "yes", "no": "no", "mixed": "mixed", "not shown": "unclear"}
_MARKS = {True: ("yes", "✔"), False: ("no", "✘"), None: ("unclear", "?")}

# `default-src 'none'` in it: whatever a text in the report says, a browser loads and runs nothing.
_PAGE = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
_OURS = b'<meta name="generator" content="toolkit">'
_HEAD_BYTES = 4096


def require_packages() -> None:
    """Raise MissingPackage where the packages that draw the figures are not installed."""
    try:
        import toolkit.measure.figures  # noqa: F401
    except ImportError as error:
        raise MissingPackage(f"an HTML report needs the package {error.name}", extra="bench") from error


def require_free(path: Path) -> None:
    """Raise UsageError for a file that is there and is no report: it shall not be lost by a slip of the hand.

    And for what cannot be such a file: a folder, or one in a folder that is not there.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"Name a file: --html {path / 'report.html'}")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder", hint="Make it, or name a file elsewhere.")
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as stream:
        if _OURS not in stream.read(_HEAD_BYTES):
            hint = "Name another file, or remove it."
            raise UsageError(f"{path} exists, and is not a report of the toolkit", hint=hint)


def page_html(report: Measurement, first: Fragment | None = None) -> str:
    """The page, with what is to stand `first`, below its answer.

    Raises MissingPackage where the packages that draw the figures are not installed.
    """
    require_packages()
    from toolkit.measure.figures import break_even_map, figures

    short = headline(report)
    valid = comparable(report)
    break_even = _figure(break_even_map(report), break_even_in_words(report.speedups)) if valid else ""
    legend = f'<p class="soft">{html("; ".join(LEGEND))}</p>'
    body = (
        _banner(report, short),
        f"<section>{first}</section>" if first else "",
        f'<div class="row">{_tiles(report) if valid else ""}</div>',
        f'<div class="row">{_verdicts(report.verdicts)}{break_even}</div>',
        f"<section>{saturation_html(report)}</section>",
        f'<section class="figures">{"".join(map(_figure, figures(report)))}</section>',
        f"<section>{what_if_html(report)}</section>",
        f"<section>{opinions_html(report)}</section>",
        f'<section><h2>All figures</h2><div class="scroll">{figures_html(report)}</div>{legend}</section>',
        f"<section><h2>How it was measured</h2>{bullets(small_print(report))}</section>",
    )
    title = html(f"{report.title}: {short.title}")
    return _PAGE.substitute(title=title, body="\n".join(body))


def _banner(report: Measurement, short: Headline) -> str:
    said = "".join(f"<p>{html(sentence)}</p>" for sentence in short.sentences)
    name = f'<div class="soft">{html(report.title)}</div>'
    return f'<header class="{_CLASSES[short.answer]}">{name}<h1>{html(short.title)}</h1>{said}</header>'


def _tiles(report: Measurement) -> str:
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
