"""Values that a version of vLLM does not take, by what its configuration classes declare, without asking it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.catalog.lookup import read
from toolkit.engines.vllm.fields import misfits
from tools.catalogue import fields


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("attention-backend", "NONSENSE", "has the value 'NONSENSE'"),
        ("attention-backend", "flash_attn", ""),
        ("pipeline-parallel-size", 0, "a whole number at least 1"),
        ("pipeline-parallel-size", "0", "a whole number at least 1"),
        ("pipeline-parallel-size", "1", ""),
        ("tensor-parallel-size", 2.5, "has the value 2.5"),
        ("max-lora-rank", 7, "It takes one of 1, 8, 16"),
        ("max-lora-rank", 16, ""),
        ("max-logprobs", -2, "at least -1"),
        ("gpu-memory-utilization", 1.5, "a number more than 0 and at most 1"),
        ("gpu-memory-utilization", "much", "has the value 'much'"),
        ("gpu-memory-utilization", 1, ""),
        ("kv-cache-dtype", "fp9", "Did you mean fp8?"),
        ("long-prefill-token-threshold", "2k", "has the value '2k'"),
        ("kv-cache-memory-bytes", "2G", ""),
        ("kv-cache-memory-bytes", "2X", "has the value '2X'"),
        ("revision", 12, ""),
        ("compilation-config", {"cudagraph_mode": "SOMETIMES"}, "has the value 'SOMETIMES'"),
        ("compilation-config", {"cudagraph_mode": "full", "mode": 3, "cudagraph_capture_sizes": [1, 2]}, ""),
        ("compilation-config", {"mode": 9}, "has the value 9"),
        ("compilation-config", {"cudagraph_capture_sizes": [1, "2"], "custom_ops": ["none"]}, ""),
        ("compilation-config", {"cudagraph_capture_sizes": [1, "many", "more"]}, "has the value 'many'"),
        ("data-parallel-size-local", -1, "a whole number at least 0"),
        ("data-parallel-size-local", 0, ""),
        ("data-parallel-size-local", 1.0, "has the value 1.0"),
        ("stream-interval", "1.0", "has the value '1.0'"),
        ("cudagraph-capture-sizes", [1, 2.0], "has the value 2.0. It takes a whole number."),
        ("cudagraph-capture-sizes", [float("inf")], "has the value inf. It takes a whole number."),
        ("seed", float("inf"), "has the value inf"),
        ("seed", float("nan"), "has the value nan"),
        ("gpu-memory-utilization", float("nan"), "has the value nan"),
        ("compilation-config", {"max_cudagraph_capture_size": float("inf")}, "has the value inf"),
        ("compilation-config", {"cudagraph_capture_sizes": [None]}, "has the value None"),
        ("compilation-config", {"custom_ops": [1]}, "has the value 1. It takes a text."),
        ("compilation-config", {"splitting_ops": [1]}, "has the value 1. It takes a text."),
        ("compilation-config", {"splitting_ops": ["a", {}]}, "has the value {}"),
        ("compilation-config", {"cache_dir": 1}, "has the value 1. It takes a text."),
        ("compilation-config", {"compile_sizes": ["cudagraph_capture_sizes", 2, True]}, ""),
        ("pt-load-map-location", {"cuda:1": "cuda:0"}, ""),
        ("pt-load-map-location", {"cuda:1": 0}, "has the value 0. It takes a text."),
        ("pt-load-map-location", {"cuda:1": None}, "has the value None. It takes a text."),
        ("pt-load-map-location", '{"": "cuda"}', ""),
        ("pt-load-map-location", '{"": 1}', "has the value 1. It takes a text."),
        ("pt-load-map-location", "cuda", ""),
        ("compilation-config", {"inductor_passes": {"a": 1}}, "has the value 1. It takes a text."),
        ("media-io-kwargs", {"video": {"num_frames": 4}}, ""),
        ("media-io-kwargs", {"video": 4}, "has the value 4"),
        ("limit-mm-per-prompt", {"image": 2}, ""),
        ("kernel-config", {"linear_backend_per_quant": {"nvfp4_w4a16": "humming"}}, ""),
        ("kernel-config", {"linear_backend_per_quant": {"nvfp4_w4a16": "HUMMING"}}, "has the value 'HUMMING'"),
        ("quantization-config", {"linear": "mxfp8", "ignore": ["a"]}, ""),
        ("quantization-config", {"nonsense": 1}, "has no key `nonsense`"),
        ("quantization-config", {"linear": {"nonsense": 1}}, "has no key `nonsense`"),
        ("cpu-offload-params", [1, 2], ""),
        ("compilation-config", {"cudagraph_capture_sizes": [2.0]}, ""),
        ("cpu-offload-gb", 1.0, ""),
        ("kv-cache-memory-bytes", "1.5g", ""),
        ("kv-cache-memory-bytes", "1.5G", "has the value '1.5G'"),
        ("attention-backend", 2, "has the value 2"),
        ("compilation-config", {"cudagraph_mode": 2}, ""),
        ("compilation-config", {"cudagraph_mode": 9}, "has the value 9"),
        ("hf-overrides", 5, "It takes a mapping"),
        ("attention-backend", 0.5, "has the value 0.5"),
        ("data-parallel-backend", 16, "It takes one of ray, mp"),
        ("compilation-config", {"cudagraph_mod": "FULL"}, "Did you mean `cudagraph_mode`?"),
        ("compilation-config", '{"pass_config": {"fuse_norm_quant": "perhaps"}}', "has the value 'perhaps'"),
        ("compilation-config", "3", "has the value '3'"),
        ("diffusion-config", 4096, "It takes a mapping"),
        ("diffusion-config", {"canvas_length": 8}, ""),
        ("distributed-executor-backend", "auto", "has the value 'auto'"),
        ("distributed-executor-backend", 16, "has the value 16"),
        ("distributed-executor-backend", "mp", ""),
        ("distributed-executor-backend", "mine.Executor", ""),
        ("distributed-executor-backend", "None", ""),
        ("structured-outputs-config", {"disable_any_whitespace": "off"}, ""),
        ("structured-outputs-config", {"backend": "grammar"}, "It takes one of auto, xgrammar"),
        ("kv-transfer-config", {"kv_role": "kv_nobody"}, "has the value 'kv_nobody'"),
        ("kv-transfer-config", {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_port": "14579"}, ""),
        ("hf-overrides", {"anything": [1]}, ""),
        ("no-such-flag", 1, ""),
        ("compilation-config", {"cudagraph_mode": None, "mode": None}, ""),
        ("attention-backend", "auto", ""),
        ("kernel-config", {"moe_backend": "FLASHINFER-CUTLASS", "enable_flashinfer_autotune": None}, ""),
        ("kernel-config", {"moe_backend": "FLASHINFER"}, "has the value 'flashinfer'"),
        ("gpu-memory-utilization", ".9", ""),
        ("gpu-memory-utilization", "nan", "has the value 'nan'"),
        ("pipeline-parallel-size", "+2", ""),
        ("max-logprobs", "4_096", ""),
        ("max-logprobs", "4,096", "has the value '4,096'"),
    ],
)  # fmt: skip
def test_a_value_is_held_against_its_declaration(flag: str, value: Any, message: str) -> None:
    found = [f"{one.what}. {one.hint}" for one in misfits(flag, value, "0.32.0")]
    assert len(found) == bool(message)
    assert message in "".join(found)


def test_a_misfit_in_a_config_names_its_key() -> None:
    (found,) = misfits("compilation-config", {"pass_config": {"fuse_norms": True}}, "0.32.0")
    assert found.key == "pass_config.fuse_norms"


def test_a_number_with_a_suffix_is_for_the_flags_of_its_version() -> None:
    assert [*misfits("safetensors-prefetch-block-size", "1M", "0.21.0")] == []
    assert [*misfits("max-num-scheduled-tokens", "1k", "0.26.0")] == []
    assert [*misfits("long-prefill-token-threshold", "1k", "0.26.0")]


def test_each_version_has_its_own_declarations() -> None:
    """`HPC_ATTN` came with 0.25; of a version that is not known nothing is said."""
    assert [*misfits("attention-backend", "HPC_ATTN", "0.25.0")] == []
    assert [*misfits("attention-backend", "HPC_ATTN", "0.24.0")]
    assert [*misfits("attention-backend", "HPC_ATTN", "99.0.0")] == []


def test_of_a_class_that_is_not_made_only_the_parser_s_part_holds() -> None:
    unmade = ("MultiModalConfig",)
    assert [*misfits("video-pruning-rate", 1.5, "0.31.0")]
    assert [*misfits("video-pruning-rate", 1.5, "0.31.0", unmade)] == []
    assert [*misfits("video-pruning-rate", "much", "0.31.0", unmade)]
    assert [*misfits("mm-encoder-attn-backend", "NONSENSE", "0.31.0", unmade)] == []
    assert [*misfits("mm-processor-kwargs", 3, "0.31.0", unmade)]
    assert [*misfits("default-mm-loras", 3, "0.31.0", ("LoRAConfig",))] == []


SOURCE = """
Role = Literal["one", "two"]
Kind = Literal[Role, "three"]

class Level(IntEnum):
    LOW = 0

class Word(str, Enum):
    SAID = "spoken"

class Named(Enum):
    CALLED = auto()
    NUMBERED = 4
    BOTH = (CALLED, NUMBERED)

@config
class Base:
    inherited: int = 1

@config(config=ConfigDict(arbitrary_types_allowed=True))
class Inner(Base):
    kind: Kind = "one"
    level: Level | None = None
    word: "Word" = Word.SAID
    named: Named = Named.CALLED
    size: Annotated[int, Field(gt=0)] = 1
    share: float = Field(default=0.5, ge=0, le=1)
    several: Optional[tuple[str, ...]] = None
    by_name: dict[str, int] = field(default_factory=dict)
    dtype: Role | torch.dtype = "one"
    unchecked: SkipValidation[Role] = "one"
    mapped: dict[str, Any] | Callable[[int], int] = field(default_factory=dict)
    path: Role | str | type[Base] | None = None
    function: Callable | None = None
    hidden: int = field(init=False)
    _private: int = 0
    everywhere: ClassVar[int] = 0

@config
class Outer:
    inner: Inner | None = None

class Unused:
    pass

@config
class Elsewhere:
    key: int = 0
"""
ARGUMENTS = """
class EngineArgs:
    def create_engine_config(self):
        size = self.size or 1
        Inner(kind=self.kind, size=size, share=self.size)

def add(parser):
    outer_kwargs = get_kwargs(Outer)
    base_kwargs = get_kwargs(Base)
    inner_kwargs = get_kwargs(Inner)
    parser.add_argument("--inner-config", "-ic", **outer_kwargs["inner"])
    parser.add_argument("--kind", type=str, default="one")
    parser.add_argument("--size", type=int)
    parser.add_argument("--share", type=float)
    parser.add_argument("--level", **{**inner_kwargs["level"], "default": None})
    parser.add_argument("--word", **{**inner_kwargs["word"], "choices": ["other"]})
    parser.add_argument("--inherited", **base_kwargs["inherited"], type=own_way)
"""


def package(folder: Path) -> Path:
    for name, text in {"config/all.py": SOURCE, "engine/arg_utils.py": ARGUMENTS}.items():
        file = folder / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return folder


def test_annotations_are_read_without_importing_them(tmp_path: Path) -> None:
    assert fields.read_fields(package(tmp_path)) == {
        "inner-config": "Outer.inner",
        "kind": "Inner.kind",
        "size": "Inner.size",
        "level": "Inner.level",
        "Outer.inner": {"types": ["Inner", "None"]},
        "Inner.inherited": {"types": ["int"]},
        "Inner.kind": {"types": [], "choices": ["three", "one", "two"]},
        "Inner.level": {"types": ["None"], "choices": ["LOW", 0], "enum": True},
        "Inner.word": {"types": [], "choices": ["SAID", "spoken"], "enum": True},
        "Inner.named": {"types": [], "choices": ["CALLED", "NUMBERED", 4, "BOTH"], "enum": True},
        "Inner.size": {"types": ["int"], "gt": 0},
        "Inner.share": {"types": ["float"], "ge": 0, "le": 1},
        "Inner.several": {"types": ["None", "list"], "of": {"types": ["str"]}},
        "Inner.by_name": {"types": ["dict"], "values": {"types": ["int"]}},
        "Inner.dtype": {"types": [], "choices": ["one", "two"]},
        "Inner.unchecked": {"types": [], "choices": ["one", "two"]},
        "Inner.mapped": {"types": ["dict"]},
        "Inner.path": {"types": ["None", "str"], "choices": ["one", "two"], "dotted": True},
        "Inner.function": {"types": ["None"]},
    }


def test_versions_with_the_same_declaration_are_one_entry() -> None:
    whole, small = {"types": ["int"]}, {"types": ["int"], "le": 8}
    read_there = {"0.9.0": {"A.x": whole}, "0.10.0": {"A.x": whole, "A.y": small}, "0.11.0": {"A.x": small}}
    made = fields.with_versions({"versions": [], "fields": {}}, read_there)
    assert made["versions"] == ["0.9.0", "0.10.0", "0.11.0"]
    assert made["fields"] == {
        "A.x": [["0.9.0", "0.11.0", whole], ["0.11.0", None, small]],
        "A.y": [["0.10.0", "0.11.0", small]],
    }
    again = fields.with_versions(made, {"0.11.0": {"A.x": whole}})
    assert again["fields"]["A.x"] == [["0.9.0", None, whole]]
    assert json.loads(fields.as_listing(again)) == again


def test_the_file_has_what_the_installed_version_declares() -> None:
    vllm = pytest.importorskip("vllm")
    shipped = read("engines/vllm/fields.json")
    declared = fields.read_fields(Path(vllm.__file__).parent)
    version = vllm.__version__.partition("+")[0]
    assert fields.with_versions(shipped, {version: declared}) == shipped
