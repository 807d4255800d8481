"""Remove what outlives endpoints, by the rules of catalog/retention.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolkit import registry
from toolkit.api.home_leftovers import HomeCleaner
from toolkit.api.listing import status
from toolkit.apply.progress import Progress, default_progress
from toolkit.display import bullets, card, data_frame, table
from toolkit.errors import PlatformError, ToolkitError
from toolkit.planning.retention import Cleaner, Found, Leftover
from toolkit.text import inert

if TYPE_CHECKING:
    from toolkit.platforms.rules import AwsSession


@dataclass(frozen=True)
class Cleaning(Sequence[Leftover]):
    """What there is, and what became of it. `failed` has the reason for each that could not be removed.

    `unread` says what could not be looked at, and why; `unasked` where nobody is logged in.
    """

    items: tuple[Leftover, ...] = ()
    unread: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    removed: tuple[Leftover, ...] = ()
    failed: tuple[tuple[Leftover, str], ...] = ()

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def going(self) -> tuple[Leftover, ...]:
        """What the rules let go."""
        return tuple(item for item in self.items if item.goes)

    @property
    def ok(self) -> bool:
        """Whether all could be looked at, and all that should go could be removed."""
        return not (self.unread or self.failed)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit clean --json`."""
        removed, failed = set(map(id, self.removed)), {id(item): why for item, why in self.failed}
        return {
            "ok": self.ok,
            "usd_per_month": sum(item.usd_per_month for item in self.going),
            "items": [
                {**item.to_dict(), "removed": id(item) in removed, "error": failed.get(id(item))} for item in self.items
            ],
            "not_read": [*self.unread, *self.unasked],
        }

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each thing."""
        return data_frame(self.to_dict()["items"])

    def __repr__(self) -> str:
        lines = [f"  {'-' if item.goes else '='} {item.kind} {item.name} ({item.why})" for item in self.items]
        return inert("\n".join([f"<Cleaning: {in_words(self.going)}>", *lines]))

    def _repr_html_(self) -> str:
        rows = ((("- goes" if item.goes else "= stays"), item.kind, item.name, item.why) for item in self.items)
        return card("What the toolkit keeps", table(rows), bullets(self.unread), says=in_words(self.going))


@dataclass
class _Search:
    """What cleaners found, and which found what."""

    found: Found = field(default_factory=Found)
    cleaner_of: dict[int, Cleaner] = field(default_factory=dict)

    def add(self, cleaner: Cleaner) -> None:
        there = cleaner.find()
        self.found += there
        self.cleaner_of |= {id(item): cleaner for item in there.items}


def clean(
    *,
    platform: str | None = None,
    dry_run: bool = False,
    approve: Callable[[Cleaning], object] | None = None,
    session: AwsSession | None = None,
    progress: Progress | None = None,
) -> Cleaning:
    """Remove what endpoints, trials and training left behind and nothing needs any more, each by its rule.

    With `dry_run` nothing is removed. `platform` is the only one to look on; `local` is this machine. `approve` gets
    the list before anything is removed, and raises to stop. `session` is an AWS session to use instead of the
    environment's. If something cannot be removed, the rest is removed all the same: `failed` says why, and the same
    call tries again. Endpoints, what they need for a rollback, and all that `toolkit destroy` removes are never
    touched.

    Raises PlatformError if the `platform` you name cannot be asked.
    """
    progress = progress or default_progress()
    search, cleaning = _looked(platform, session, progress)
    if dry_run or not cleaning.going:
        return cleaning
    if approve:
        approve(cleaning)
        search, cleaning = _looked(platform, session, progress)  # while the user thought, others may have deployed
    removed, failed = [], []
    for item in cleaning.going:
        try:
            with progress.stage(f"remove {item.kind} {item.name}"):
                search.cleaner_of[id(item)].remove(item)
            removed.append(item)
        except PlatformError as error:
            failed.append((item, error.message))
    return replace(cleaning, removed=tuple(removed), failed=tuple(failed))


def _looked(platform: str | None, session: AwsSession | None, progress: Progress) -> tuple[_Search, Cleaning]:
    search = _Search()
    with progress.stage("look"):
        unasked = tuple(_look(search, platform, session))
    return search, Cleaning(_in_order(search.found.items), search.found.unread, unasked)


def _look(search: _Search, platform: str | None, session: AwsSession | None) -> Iterator[str]:
    """Look everywhere; gives where nobody is logged in."""
    if session is None and (platform is None or registry.session_of(platform).is_this_machine):
        search.add(HomeCleaner({item.name for item in status(details=False)}))
    for name in (platform,) if platform else ("sagemaker",) if session else registry.platforms():
        opened = registry.session_of(name, session)
        if not opened.can_be_asked():
            if platform:
                raise PlatformError(f"{name} cannot be asked: {opened.account_name} is needed", hint="Log in.")
            if opened.unasked:
                yield opened.unasked
            continue
        try:
            cleaner = opened.cleaner(None)
            if cleaner:
                search.add(cleaner)
        except ToolkitError as error:
            if platform:
                raise
            if not opened.may_be_absent:
                search.found += Found(unread=(f"{error.message} {error.hint}".strip(),))


def _in_order(items: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """What goes first; of each the dearest, then the largest."""
    return tuple(sorted(items, key=lambda item: (not item.goes, -item.usd_per_month, -(item.size or 0), item.name)))


def in_words(items: Sequence[Leftover]) -> str:
    """How many, how large, and what they cost."""
    size, price = sum(item.size or 0 for item in items), sum(item.usd_per_month for item in items)
    return f"{len(items)} thing{'' if len(items) == 1 else 's'}, {size / 1e9:.2f} GB, {price:.2f} $ a month"
