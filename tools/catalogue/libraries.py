"""engines/vllm/libraries.json: what the libraries below vLLM say where they refuse a model's files, read in them.

As `refusals.json`, of the versions that were read: those that are installed beside vLLM.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER, version_key
from tools.catalogue.documents import Documents
from tools.catalogue.refusals import as_text, texts_of

_FILE = FOLDER / "engines" / "vllm" / "libraries.json"
# By library and the code of the cause. What others than a model's loader call is left out.
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "transformers": {
        "model-config": ("configuration_utils.py", "modeling_rope_utils.py", "models/auto/*.py"),
        "model-files": ("utils/hub.py",),
        "tokenizer": ("tokenization_*.py", "convert_slow_tokenizer.py"),
        "multimodal": ("image_processing_*.py", "video_processing_utils.py", "processing_utils.py"),
        "quantization": ("modeling_gguf_pytorch_utils.py", "quantizers/*.py"),
        "remote-code": ("dynamic_module_utils.py",),
    },
    "huggingface_hub": {"hub-missing": ("utils/_validators.py",)},
    "torch": {"rendezvous": ("distributed/rendezvous.py",)},
}
_ANY = re.compile("")
_LEAST_LETTERS = 34


def generate(documents: Documents) -> str:
    """The text of the file, with the installed versions added to those that it has."""
    shipped = json.loads(_FILE.read_text(encoding="utf-8"))
    return as_text({**with_libraries(shipped), "date": documents.date})


def with_libraries(shipped: dict[str, Any]) -> dict[str, Any]:
    """The file with the words of the installed libraries, too."""
    words = {cause["code"]: set(cause["words"]) for cause in shipped["log"]}
    versions = {library: set(read) for library, read in shipped["versions"].items()}
    for library, files in _FILES.items():
        versions[library].add(importlib.metadata.version(library.replace("_", "-")).partition("+")[0])
        for code, found in read_library(library, files).items():
            words[code] |= found
    return {
        **shipped,
        "versions": {library: sorted(read, key=version_key) for library, read in versions.items()},
        "log": [{**cause, "words": sorted(words[cause["code"]])} for cause in shipped["log"]],
    }


def read_library(library: str, files: dict[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """Regular expressions of what is raised, by the code of the cause."""
    folder = Path(str(importlib.metadata.distribution(library).locate_file(library)))
    return {
        code: {
            text
            for name in names
            for file in folder.glob(name)
            for text in texts_of(file, _ANY, every=True)
            if len(text.replace(".*", "")) >= _LEAST_LETTERS
        }
        for code, names in files.items()
    }
