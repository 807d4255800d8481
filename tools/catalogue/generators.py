"""All generators, by the file of the catalogue that each writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.catalogue import (
    aws_errors,
    clashes,
    fields,
    heads,
    images,
    instances,
    libraries,
    listings,
    names,
    neuron,
    refusals,
    registries,
    requests,
    values,
)
from tools.catalogue.documents import Documents

GENERATORS: Mapping[str, Callable[[Documents], str]] = {
    "aws_errors.json": aws_errors.generate,
    "heads.json": heads.generate,
    "images.json": images.generate,
    "instances.json": instances.generate,
    "registries.json": registries.generate,
    "engines/neuron.json": neuron.generate,
    "engines/vllm/clashes.json": clashes.generate,
    "engines/vllm/fields.json": fields.generate,
    "engines/vllm/flags.json": listings.generate_flags,
    "engines/vllm/libraries.json": libraries.generate,
    "engines/vllm/models.json": listings.generate_models,
    "engines/vllm/names.json": names.generate,
    "engines/vllm/values.json": values.generate,
    "engines/vllm/refusals.json": refusals.generate,
    "engines/vllm/requests.json": requests.generate,
}

BY_HAND = {
    "models.json": "the keys that the checks read of config.json files, which each entry's source has",
    "methods.json": "read in papers and engines' sources; each key names where",
    "retention.json": "the toolkit's own rules; prices name their source",
    "platforms.json": "the toolkit's own names; facts name their source",
    "engines/vllm.json": "boundaries between versions and how it drafts, read in its sources; each fact names where",
    "engines/vllm/risks.json": "judged by people, from the code that reads each flag and variable",
}
"""Files without a generator, and why."""
