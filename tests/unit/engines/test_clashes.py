"""Settings that a version of vLLM refuses together, by the conditions in its own validators."""

from __future__ import annotations

from pathlib import Path

import pytest
from flag_recipe import RECIPE
from pairs import write_hub_pair

from toolkit import check
from toolkit.catalog.lookup import read
from tools.catalogue import clashes
from tools.catalogue.fields import with_versions


def told(folder: Path, args: str, version: str = "0.30.0") -> list[tuple[str, str]]:
    report = check(write_hub_pair(folder, RECIPE.format(version=version, args=args)))
    return [(item.path, item.message) for item in report.findings if item.code == "engine.combination"]


@pytest.mark.parametrize(
    ("args", "path", "message"),
    [
        ("{enable-log-outputs: true}", "enable-log-outputs", "`enable-log-requests: false`"),
        ("{numa-bind-nodes: [0]}", "numa-bind-nodes", "`numa-bind-nodes: [0]` with `numa-bind: false`"),
        ("{enable-eplb: true, no-enable-expert-parallel: true, data-parallel-size: 2}", "enable-eplb",
         "must be True to use EPLB"),
        ("{kv-transfer-config: {kv_connector: NixlConnector}}", "kv-transfer-config.kv_connector",
         "with `kv-transfer-config.kv_role: null`"),
        ("{structured-outputs-config: '{\"disable_any_whitespace\": true}'}",
         "structured-outputs-config.disable_any_whitespace", "only supported for xgrammar and guidance"),
        ("{eplb-config: {num_redundant_experts: '2'}}", "eplb-config.num_redundant_experts", "EPLB is not enabled"),
        ("{structured-outputs-config: {disable_any_whitespace: 'yes'}}",
         "structured-outputs-config.disable_any_whitespace", "only supported for xgrammar and guidance"),
        ("{offload-num-in-group: '10', offload-group-size: '9'}", "offload-num-in-group", "must be <="),
        ("{decode-context-parallel-size: 3, tensor-parallel-size: 4}", "decode-context-parallel-size",
         "refuses `tensor-parallel-size: 4` with `decode-context-parallel-size: 3` and `prefill-context-"),
        ("{structured-outputs-config: {backend: auto, disable_any_whitespace: true}}",
         "structured-outputs-config.disable_any_whitespace", "only supported for xgrammar and guidance"),
        ("{enable-auto-tool-choice: true}", "enable-auto-tool-choice", "null`: --enable-auto-tool-choice requires"),
        ("{enable-batch-sharded-sampling: true}", "enable-batch-sharded-sampling", "nothing to shard"),
        ("{enable-eplb: true, enable-expert-parallel: true}", "enable-eplb", "EPLB requires tensor"),
        ("{kda-prefill-backend: fused}", "kda-prefill-backend", "only available on ROCm"),
    ],
)  # fmt: skip
def test_settings_that_are_refused_together_are_named(tmp_path: Path, args: str, path: str, message: str) -> None:
    ((where, what),) = told(tmp_path, args)
    assert where == f"engine.args.{path}"
    assert what.startswith("vLLM 0.30.0 refuses ")
    assert message in what


@pytest.mark.parametrize(
    "args",
    [
        "{enable-log-outputs: true, enable-log-requests: true}",
        "{enable-log-outputs: false}",
        "{enable-batch-sharded-sampling: true, tensor-parallel-size: 4}",
        "{enable-eplb: true, enable-expert-parallel: true, data-parallel-size: 2}",
        "{decode-context-parallel-size: '2', tensor-parallel-size: 4}",
        "{numa-bind-nodes: [0], numa-bind: true}",
        "{kv-transfer-config: {kv_connector: NixlConnector, kv_role: kv_both}}",
        "{structured-outputs-config: {disable_any_whitespace: true, backend: xgrammar}}",
        "{eplb-config: {num_redundant_experts: 0}}",
        "{structured-outputs-config: {disable_any_whitespace: 'false'}}",
        "{offload-num-in-group: '9', offload-group-size: '10'}",
        "{numa-bind-nodes: []}",
        "{no-enable-auto-tool-choice: true, enable-auto-tool-choice: true}",
    ],
)
def test_settings_that_go_together_are_not(tmp_path: Path, args: str) -> None:
    assert told(tmp_path, args) == []


@pytest.mark.parametrize(
    ("version", "args", "hint"),
    [
        ("0.30.0", "{kv-transfer-config: {kv_connector: NixlConnector}}",
         "Add `kv-transfer-config.kv_role`, or remove `kv-transfer-config.kv_connector`."),
        ("0.30.0", "{decode-context-parallel-size: 3, tensor-parallel-size: 4}",
         "Change `tensor-parallel-size` or `decode-context-parallel-size`."),
        ("0.30.0", "{decode-context-parallel-size: 3}", "Remove it."),
        ("0.24.0", "{max-num-partial-prefills: 2}", "Remove it."),
    ],
)  # fmt: skip
def test_the_edit_is_of_what_the_recipe_writes(tmp_path: Path, version: str, args: str, hint: str) -> None:
    report = check(write_hub_pair(tmp_path, RECIPE.format(version=version, args=args)))
    assert [item.hint for item in report.findings if item.code == "engine.combination"] == [hint]


@pytest.mark.parametrize(
    ("version", "args", "path"),
    [
        ("0.24.0", "{max-num-partial-prefills: 0}", "max-num-partial-prefills"),
        ("0.32.0", "{collect-detailed-traces: [model, 'None']}", "collect-detailed-traces"),
        ("0.32.0", "{engram-config: 'null'}", "engram-config"),
        ("0.32.0", "{pooler-config: 'null'}", "pooler-config"),
    ],
)
def test_a_value_that_is_none_is_told_once(tmp_path: Path, version: str, args: str, path: str) -> None:
    found = check(write_hub_pair(tmp_path, RECIPE.format(version=version, args=args))).findings
    told = [(item.code, item.path) for item in found if item.path.startswith("engine.args")]
    assert told == [("engine.flag-value", f"engine.args.{path}")]


def test_an_image_of_ones_own_may_be_for_another_platform(tmp_path: Path) -> None:
    text = RECIPE.format(version="0.32.0", args="{kda-prefill-backend: fused}")
    text += "container: {base: 'vllm/vllm-openai-rocm:v0.32.0'}\n"
    report = check(write_hub_pair(tmp_path, text))
    assert [item for item in report.findings if item.code == "engine.combination"] == []


@pytest.mark.parametrize(("version", "known"), [("0.34.0", "0.33.0"), ("0.32.1", "0.32.0")])
def test_a_version_that_was_not_read_has_the_conditions_of_the_last_before_it(
    tmp_path: Path, version: str, known: str
) -> None:
    ((_, what),) = told(tmp_path, "{enable-eplb: true, data-parallel-size: 2}", version)
    assert what.startswith(f"vLLM {known} (the last known before yours) refuses `enable-eplb: true`")


def test_each_version_has_its_own_conditions(tmp_path: Path) -> None:
    args = "{engram-config: {use_thp: true, cpu_offload: false}}"
    assert told(tmp_path, args, "0.33.0")
    assert told(tmp_path, args, "0.29.0") == []


CONFIGS = """
@config
class Inner:
    size: int = 1
    mode: str | None = None

@config
class Outer:
    inner: Inner = Field(default_factory=Inner)
    on: bool = False
    least: int = Field(default=2, ge=0)
    most: int = 8
    passed: int = 0
    here: int = 0

    @field_validator("on", mode="before")
    @classmethod
    def _read(cls, value):
        if value == 3:
            raise ValueError("about a value")

    @model_validator(mode="before")
    def _before(self):
        if self.on:
            raise ValueError("before anything is made")

    @model_validator(mode="after")
    def _verify(self):
        if platform.is_cuda() and self.on:
            raise ValueError("needs no GPU")
        if self.on or platform.is_cuda():
            if not self.least <= 3:
                raise ValueError(f"{self.least} is too much")
        elif self.most < self.least:
            raise ValueError("cannot be told: there may be a GPU")
        assert self.inner.mode not in ("a", "b") or self.inner.size is not None, "no mode"
        if self.passed:
            raise ValueError("is not what the flag says")
        if self.least == 5:
            return self
        for one in ():
            raise ValueError("in a loop")
        if self.most != 8:
            raise ValueError("unless it has returned")
        self.here = 1
        if self.here > 0:
            raise ValueError("was changed before")

    @model_validator(mode="after")
    def _lists(self):
        if not self.on:
            self.on = False
        wrong, other = [], []
        if self.least % self.most != 0:
            wrong.append("no multiple")
        elif self.least * self.most > 1:
            other.append("noted only")
        if wrong:
            raise ValueError(", ".join(wrong))
        if self.least * self.most <= 1:
            raise ValueError("too small")

    @model_validator(mode="after")
    def _platform(self):
        if self.on and not current_platform.is_rocm():
            raise ValueError("for ROCm alone")
"""
ARGUMENTS = """
class EngineArgs:
    plain: int | None = None

    def create_engine_config(self):
        Outer(on=self.on, least=self.least, most=self.most, here=self.here, passed=self.passed or 1, inner=self.inner)
        if self.plain is not None and self.most > 4:
            raise ValueError("not both")

    def _check_feature_supported(self):
        if self.least != Outer.least:
            _raise_unsupported_error(feature_name="another least")

def add(parser):
    outer = get_kwargs(Outer)
    parser.add_argument("--on", **outer["on"])
    parser.add_argument("--least", **outer["least"])
    parser.add_argument("--most", **outer["most"])
    parser.add_argument("--here", **outer["here"])
    parser.add_argument("--passed", **outer["passed"])
    parser.add_argument("--inner", **outer["inner"])
"""


def test_conditions_are_read_without_running_them_and_what_else_decides_is_left_out(tmp_path: Path) -> None:
    for name, text in {"config/all.py": CONFIGS, "engine/arg_utils.py": ARGUMENTS}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    found = clashes.read_clashes(tmp_path)
    assert {says: entry["ways"] for says, entry in found.items()} == {
        "… is too much": [[["Outer.on", "on", None], ["Outer.least", ">", 3]]],
        "no mode": [[["Inner.mode", "in", ["a", "b"]], ["Inner.size", "==", None]]],
        "no multiple": [[["Outer.least", "no multiple of", {"of": "Outer.most"}]]],
        "too small": [[["Outer.least", "<=", 1], ["Outer.most", "<=", 1]]],
        "another least": [[["Outer.least", "!=", 2]]],
        "for ROCm alone": [[["Outer.on", "on", None], [clashes.PLATFORM, "on", None]]],
        "unless it has returned": [[["Outer.least", "!=", 5], ["Outer.most", "!=", 8]]],
        "not both": [[["--plain", "!=", None], ["Outer.most", ">", 4]]],
    }
    assert found["no mode"]["defaults"] == {"Inner.mode": None, "Inner.size": 1}
    assert found["not both"]["defaults"] == {"--plain": None, "Outer.most": 8}


def test_the_file_has_what_the_installed_version_refuses() -> None:
    vllm = pytest.importorskip("vllm")
    shipped = read("engines/vllm/clashes.json")
    version = vllm.__version__.partition("+")[0]
    found = clashes.read_clashes(Path(vllm.__file__).parent)
    assert found
    assert with_versions(shipped, {version: found}, "clashes") == shipped
