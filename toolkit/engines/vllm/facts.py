"""Facts about vLLM by version: its settings, flags and models.

Each function looks up one fact. What no source states is empty or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from toolkit import documents
from toolkit.catalog.lookup import read, version_key

_T = TypeVar("_T")
_VALUES = "engines/vllm/values.json"


@dataclass(frozen=True)
class Versions:
    """Engine versions from `since` up to, but without, `until` (`None`: no end)."""

    since: str
    until: str | None

    def __contains__(self, version: str) -> bool:
        key = version_key(version)
        return version_key(self.since) <= key and (self.until is None or key < version_key(self.until))


@dataclass(frozen=True)
class EngineFacts:
    """Facts about vLLM across versions. Their sources are in catalog/engines/vllm.json.

    Fields:
        mask_token_keys_since: by first version, the config.json keys that the engine tries in that order.
        kv_group_factor_since: by first version: layers of two attention types share a group size when the larger
            count is below this factor times the smaller.
        token_budget_subtraction: versions that subtract the draft slots of `max_num_seqs` requests from the token
            budget of every step; later ones count the slots of scheduled requests only.
        max_position_crash_until: first version that serves a head whose `max_position_embeddings` is below
            `max_model_len`.
        drafter_stages_until: first version that does not divide a drafter into the stages of the target's pipeline.
        full_vocabulary_map_until: first version that refuses a head which drafts from the whole vocabulary and stores
            a `d2t` all the same.
        harmony_download_until: first version that serves gpt-oss without downloading a vocabulary when it starts.
        multimodal_parallel_since: first version that lets P-EAGLE and PARD draft for a multimodal target (text only).
        head_norms_since: first version that computes the norms of EAGLE-3.1 heads.
        synthetic_acceptance_since: first version that can accept drafts by chance, as many as its setting
            `synthetic_acceptance_length` says. Needs a GPU: on CPUs it refuses to start.
        rejected_sampling_params: request parameters that are refused while speculation is on.
    """

    mask_token_keys_since: Mapping[str, tuple[str, ...]]
    kv_group_factor_since: Mapping[str, float]
    token_budget_subtraction: Versions
    max_position_crash_until: str
    drafter_stages_until: str
    full_vocabulary_map_until: str
    harmony_download_until: str
    multimodal_parallel_since: str
    speculators_peagle_since: str
    head_norms_since: str
    speculators_qwen3_arch_since: str
    per_request_metrics_since: str
    synthetic_acceptance_since: str
    rejected_sampling_params: tuple[str, ...]
    default_max_num_seqs: int
    default_max_num_batched_tokens: int


Takes = Literal["on_off", "one", "several", "optional", "json_list"]
"""How many values a flag takes; `optional` is none or one, `json_list` is one, a list in JSON."""


@dataclass(frozen=True)
class ParsedFlag:
    """A flag as a parser reads it.

    Fields:
        short: its names with one dash.
        choices: the only texts that it takes; with `any_case` in capitals and with dashes, too.
        parsed: what the parser makes of the text, an object in JSON for example; with `or_none` it may be `None`.
    """

    takes: Takes = "one"
    alias_of: str = ""
    short: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    any_case: bool = False
    parsed: Literal["int", "float", "json", "object", ""] = ""
    or_none: bool = False


@dataclass(frozen=True)
class Risk:
    """What a flag does that a model does not need. `only` is a pattern of the values that do it; empty: all."""

    risk: str
    only: str = ""


@cache
def facts() -> EngineFacts:
    """Facts about vLLM across versions."""
    return documents.fit(EngineFacts, read("engines/vllm.json")["facts"])


def mask_token_keys(version: str) -> tuple[str, ...]:
    """Keys of a drafter's config.json in which that version looks for the mask token, in order."""
    return _at(facts().mask_token_keys_since, version) or ()


def kv_group_factor(version: str) -> float | None:
    """The factor of `EngineFacts.kv_group_factor_since`; `None` for a version before the first one known."""
    return _at(facts().kv_group_factor_since, version)


def subtracts_draft_slots(version: str) -> bool:
    """Whether that version subtracts draft slots of all possible requests from the token budget of every step."""
    return version in facts().token_budget_subtraction


def flag_known(version: str, flag: str) -> bool | None:
    """Whether that version's server has `--flag` (no leading dashes; `_` is `-`). `None`: version not in the data."""
    name = flag.replace("_", "-")
    known = _listed(read("engines/vllm/flags.json"), "flags", version, name)
    # The parser of 0.33 has further names for on/off flags, `--disable-x` beside `--enable-x`.
    return entry(_VALUES, "flags", name, version) is not None if known is False else known


def flag_removed(flag: str) -> str | None:
    """The first version without a flag that earlier ones had; `None` if there is none in the data."""
    since_until: Sequence[str | None] | None = read("engines/vllm/flags.json")["flags"].get(flag)
    return since_until[1] if since_until else None


def flags(version: str) -> tuple[str, ...]:
    """Every flag of that version's server, without leading dashes; empty if the version is not in the data."""
    names = {**read("engines/vllm/flags.json")["flags"], **read(_VALUES)["flags"]}
    return tuple(flag for flag in names if flag_known(version, flag))


def short_for(version: str, flag: str) -> str:
    """The only flag of that version that begins so, which its parser then takes it for; empty if there is none."""
    whole = [name for name in flags(version) if name.startswith(flag.replace("_", "-"))]
    return whole[0] if len(whole) == 1 else ""


def takes(flag: str) -> Takes | None:
    """What that flag takes, with dashes. `None`: no parser that was read has such a flag."""
    known = _last(flag)
    return known.takes if known else None


def alias_of(flag: str) -> str:
    """The flag that `flag` is another name of; empty if it is none."""
    known = _last(flag)
    return known.alias_of if known else ""


def whole_name(short: str) -> str:
    """The flag that is written `-short`, such as `tp`; itself if there is none."""
    spans_of = read(_VALUES)["flags"]
    return next((flag for flag, spans in spans_of.items() if short in spans[-1][2].get("short", ())), short)


def parsed_flag(flag: str, version: str) -> ParsedFlag:
    """The flag as that version's parser reads it; one of which nothing is said, where that is not known."""
    return documents.fit(ParsedFlag, entry(_VALUES, "flags", flag, version) or {})


def entry(file: str, kind: str, name: str, version: str) -> Any:
    """What that version has under a name, in a file that says it by spans of versions; None if nothing."""
    listing = read(file)
    if version not in listing["versions"]:
        return None
    spans = listing[kind].get(name, ())
    return next((found for since, until, found in spans if version in Versions(since, until)), None)


def _last(flag: str) -> ParsedFlag | None:
    """The flag as the last parser that has it reads it."""
    spans = read(_VALUES)["flags"].get(flag)
    return documents.fit(ParsedFlag, spans[-1][2]) if spans else None


def names(kind: str, version: str) -> tuple[str, ...]:
    """The names of that kind (names.json) that the version knows; empty for one that is not in the data."""
    listing = read("engines/vllm/names.json")
    return tuple(name for name in listing.get(kind, ()) if _listed(listing, kind, version, name))


@cache
def risky_flags() -> Mapping[str, Risk]:
    """Flags that run code, load files or open the server, by name."""
    return documents.fit(dict[str, Risk], read("engines/vllm/risks.json")["flags"])


def variable_risk(variable: str) -> str | None:
    """What that environment variable does, where it runs code, loads files or opens the server."""
    risks: Mapping[str, str] = read("engines/vllm/risks.json")["variables"]
    return next((risk for name, risk in risks.items() if _names(name, variable)), None)


def _names(written: str, variable: str) -> bool:
    """Whether it is the one that is written there, or one of those that begin so: `CUSTOM_*`."""
    return variable.startswith(written[:-1]) if written.endswith("*") else variable == written


def supports_eagle3(version: str, architecture: str) -> bool | None:
    """Whether that version supports EAGLE-3 and P-EAGLE heads for a target of `architecture`.

    `architecture` is the class name in config.json. `None`: version or architecture not in the data.
    """
    listing = read("engines/vllm/models.json")
    if not _listed(listing, "targets", version, architecture):
        return None
    return _listed(listing, "eagle3_targets", version, architecture)


def generates(version: str, architecture: str) -> bool | None:
    """Whether a registry of vLLM's has it among the models that generate. `None`: version not in the data."""
    listing = read("engines/vllm/models.json")
    return architecture in listing["targets"] if version in listing["versions"] else None


def drafter_known(version: str, architecture: str) -> bool | None:
    """Whether `architecture` is in that version's registry of drafters. `None`: version not in the data."""
    return _listed(read("engines/vllm/models.json"), "drafters", version, architecture)


def divides(version: str, architecture: str) -> bool | None:
    """Whether that version can divide such a model into the stages of a pipeline. `None`: not in the data."""
    listing = read("engines/vllm/models.json")
    if not any(_listed(listing, kind, version, architecture) for kind in ("targets", "drafters")):
        return None
    return not _listed(listing, "unstaged", version, architecture)


def _at(changes: Mapping[str, _T], version: str) -> _T | None:
    """The last of `changes` (sorted by version) that applies to `version`."""
    applying = [value for since, value in changes.items() if version_key(since) <= version_key(version)]
    return applying[-1] if applying else None


def _listed(listing: Mapping[str, Any], kind: str, version: str, name: str) -> bool | None:
    if version not in listing["versions"]:
        return None
    return name in listing[kind] and version in Versions(*listing[kind][name])
