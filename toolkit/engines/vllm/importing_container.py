"""A container of SageMaker that starts vLLM, as a recipe's sections: its image, variables and model data.

`container` is a ContainerDefinition of CreateModel. `SM_VLLM_*` are flags, as AWS's vLLM images make them; `OPTION_*`
are keys of DJL's LMI, which hands all that it does not know itself to vLLM (github deepjavalibrary/djl-serving
@00db6305, serving/docs/lmi/user_guides/vllm_user_guide.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import CHANNELS_DIR, MODEL_DIR
from toolkit.engines.vllm.command_line import ENGINE, VllmSettings, decoded
from toolkit.engines.vllm.facts import takes
from toolkit.engines.vllm.flags import NO_MODEL_CODE, PREFIX
from toolkit.errors import UsageError

_LMI_PREFIX = "OPTION_"
# What LMI calls by another name than vLLM.
_LMI_NAMES = {
    "model-id": "model",
    "quantize": "quantization",
    "max-rolling-batch-size": "max-num-seqs",
    "max-rolling-batch-prefill-tokens": "max-num-batched-tokens",
    "cpu-offload-gb-per-gpu": "cpu-offload-gb",
    "tensor-parallel-degree": "tensor-parallel-size",
    "pipeline-parallel-degree": "pipeline-parallel-size",
}
# The hub's variables that LMI and AWS's vLLM images read, and LMI's without prefix.
_OTHER_NAMES = {
    "HF_MODEL_ID": "model",
    "HF_REVISION": "revision",
    "TENSOR_PARALLEL_DEGREE": "tensor-parallel-size",
}
_DEAD = "speculative-draft-model"
# The SDK adds them for its own handlers, which no recipe has.
_OF_THE_SDK = re.compile(r"SAGEMAKER_\w+|MODEL_CACHE_ROOT|TS_\w+|SERVING_\w+|LOCAL_PYTHON")
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+)(?:[-_].*)?")
# In names and tags of AWS's images.
_OTHER_ENGINES = re.compile(
    r"(?<![a-z])(sglang|tgi|tei|tensorrtllm|tensorrt-llm|tritonserver|neuronx?|torchserve|pytorch-inference)(?![a-z])"
)


def read_container(container: Mapping[str, Any]) -> VllmSettings:
    """The recipe's sections. Raises UsageError for an image of another engine, or a container without a model."""
    imported = VllmSettings("a container of SageMaker")
    places = dict(_places(container))
    variables = {str(name): str(value) for name, value in (container.get("Environment") or {}).items()}
    image = str(container.get("Image") or "")
    if image:
        _image(image, variables, imported)
    # What an image reads by other names comes first: its own settings go before that.
    for name, text in sorted(variables.items(), key=lambda item: (item[0] not in _OTHER_NAMES, item[0])):
        _variable(name, text, places, imported)
    if "model" not in imported.target and MODEL_DIR in places:
        imported.target["model"] = places[MODEL_DIR]
    if "model" not in imported.target:
        hint = f"Give it model data in S3, or set {PREFIX}MODEL or HF_MODEL_ID to the model's id on the hub."
        raise UsageError("the container names no model", hint=hint)
    return imported


def _places(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Folders of the container with the prefix in S3 that fills each. Raises UsageError for an archive."""
    sources = [(MODEL_DIR, container.get("ModelDataSource"))]
    for channel in container.get("AdditionalModelDataSources") or ():
        sources.append((f"{CHANNELS_DIR}/{channel['ChannelName']}", channel))
    found = {folder: source["S3DataSource"] for folder, source in sources if source and "S3DataSource" in source}
    if url := container.get("ModelDataUrl"):
        found.setdefault(MODEL_DIR, {"S3Uri": url})
    for folder, source in found.items():
        uri = str(source["S3Uri"])
        if source.get("CompressionType") == "Gzip" or uri.endswith(".tar.gz"):
            hint = "Unpack it below a prefix of S3, and name that: CompressionType None, S3DataType S3Prefix."
            raise UsageError(f"the model data is an archive, which a recipe cannot name: {uri}", hint=hint)
        yield folder, f"{uri.rstrip('/')}/"


def _in_s3(path: str, places: Mapping[str, str]) -> str:
    """The prefix in S3 of a folder of the container; the path itself where it is none of them."""
    for folder, uri in places.items():
        if path.rstrip("/") == folder or path.startswith(f"{folder}/"):
            return uri + "".join(f"{part}/" for part in path.removeprefix(folder).split("/") if part)
    return path


def _image(image: str, variables: Mapping[str, str], imported: VllmSettings) -> None:
    """The engine's version. Raises UsageError where it is not vLLM that serves."""
    repository, _, tag = image.partition("@")[0].rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "")
    name = repository.rpartition("/")[2]
    other = _OTHER_ENGINES.search(f"{name}:{tag}")
    if other or not (ENGINE in repository or name.startswith("djl-inference") or _starts_vllm(variables)):
        what = f"another engine than vLLM ({other[1]})" if other else "no image of vLLM"
        hint = "Only what vLLM serves can be imported; for another model: toolkit new MODEL."
        raise UsageError(f"the container's image is of {what}: {image}", hint=hint)
    listed = [
        known.version for known in lookup.images("sagemaker", ENGINE) if (known.repository, known.tag) == (name, tag)
    ]
    release = _RELEASE.fullmatch(tag) if ENGINE in repository else None
    if version := listed[0] if listed else release[1] if release else "":
        imported.engine["version"] = version
    if not listed:
        insist = f" and `engine.version: {version}`" if version else " and its `engine.version`"
        hint = f"If it serves like AWS's vLLM images, keep it: `container: {{base: {image}}}`{insist}."
        imported.leave_out(f"image {image}", "AWS's image of vLLM is taken", hint)


def _starts_vllm(variables: Mapping[str, str]) -> bool:
    return any(name.startswith((PREFIX, _LMI_PREFIX)) for name in variables)


def _variable(name: str, text: str, places: Mapping[str, str], imported: VllmSettings) -> None:
    if name.startswith(PREFIX):
        _flag(name.removeprefix(PREFIX), name, text, places, imported)
    elif name in _OTHER_NAMES:
        _flag(_OTHER_NAMES[name], name, text, places, imported)
    elif name.startswith(_LMI_PREFIX):
        key = name.removeprefix(_LMI_PREFIX).lower().replace("_", "-")
        if key == _DEAD:
            hint = "Name the drafter in `speculation`, or let one be found: toolkit new MODEL."
            imported.leave_out(f"{name}={text}", "vLLM in LMI does not read it: nothing drafts", hint)
        elif takes(_LMI_NAMES.get(key, key)):
            _flag(_LMI_NAMES.get(key, key), name, text, places, imported)
        else:
            imported.leave_out(f"{name}={text}", "it is a setting of LMI's server, and AWS's vLLM image has its own")
    elif NO_MODEL_CODE.get(name) == text:
        return  # the toolkit's own, which it sets again
    elif _OF_THE_SDK.fullmatch(name):
        imported.leave_out(f"{name}={text}", "it is for a model server's own handlers, which a recipe does not have")
    else:
        imported.add_variable(name, text)


def _flag(key: str, name: str, text: str, places: Mapping[str, str], imported: VllmSettings) -> None:
    """A flag of a variable, with S3 for a folder of the container. Values are as the images read them."""
    flag, word = key.lower().replace("_", "-"), text.strip().lower()
    if word == "false" and takes(flag) == "on_off":
        return
    if word == "max" and flag.endswith("-parallel-size"):
        hint = f"Add `{flag}` to `engine.args` with the GPUs of your instance type."
        imported.leave_out(f"{name}={text}", "a recipe says the number", hint)
    elif flag == "config":
        hint = "Add its flags to `engine.args`."
        imported.leave_out(f"{name}={text}", "the flags of that file are not read", hint)
    else:
        value = True if word in ("", "true") else decoded(text)
        if flag == "speculative-config" and isinstance(value, Mapping) and "model" in value:
            value = {**value, "model": _in_s3(str(value["model"]), places)}
        imported.add_flag(flag, _in_s3(value, places) if isinstance(value, str) else value)
