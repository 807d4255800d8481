"""Settings of vLLM that were written for Trainium, as sections of a recipe for one of the engines here.

What people copy are AWS's own commands: its samples for EKS and NxD Inference's tutorials, whose flags differ between
the fork of vLLM V0 and the plugin, and vllm-neuron's guides.
"""

from __future__ import annotations

from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.neuron.checks import DRAFTING_KEYS, READ
from toolkit.engines.neuron.flags import PLUGIN_SINCE
from toolkit.engines.neuron.generations import ANY_ENGINE, generations
from toolkit.recipe.imported import Imported
from toolkit.recipe.schema import SpeculationSection

_OWN = "the toolkit sets it itself"
# Variables, and why a recipe has no place for them.
_OWN_VARIABLES = {
    "VLLM_NEURON_FRAMEWORK": _OWN,
    "VLLM_USE_V1": _OWN,
    "NEURON_COMPILED_ARTIFACTS": "the toolkit keeps what is compiled, and finds it",
}
_FORKS = "override-neuron-config"
_PLUGINS, _VLLM_NEURONS = (READ[engine][0] for engine in ("nxd-inference", "vllm-neuron"))
_DRAFTER_KEYS = SpeculationSection.model_fields


def adopt(imported: Imported) -> bool:
    """Make settings for Trainium those of an engine here; whether they are such."""
    args, env = imported.engine.get("args", {}), imported.engine.get("env", {})
    configuration = args.get("additional-config")
    inner: dict[str, Any] = configuration if isinstance(configuration, dict) else {}
    if _FORKS in inner:  # as NxD Inference's guide writes what its plugin reads
        inner[_PLUGINS] = inner.pop(_FORKS)
    is_fork = isinstance(args.get(_FORKS), dict)
    signs = (is_fork, _PLUGINS in inner, _VLLM_NEURONS in inner, args.get("device") == "neuron")
    if not any(signs) and not any(name.startswith(("NEURON_", "VLLM_NEURON_")) for name in env):
        return False
    imported.engine["name"] = _engine(imported, is_fork, inner)
    if args.pop("device", None):
        imported.leave_out("--device neuron", "the engine says it")
    for name in env.keys() & _OWN_VARIABLES.keys():
        imported.leave_out(f"{name}={env.pop(name)}", _OWN_VARIABLES[name])
    own = args[_FORKS] if is_fork else inner.get(_PLUGINS)
    _speculation(imported, own if isinstance(own, dict) else {}, is_fork)
    for section in ("args", "env"):
        if not imported.engine.get(section, True):
            del imported.engine[section]
    return True


def _engine(imported: Imported, is_fork: bool, inner: dict[str, Any]) -> str:
    """The engine's name: by its version, or by what reads that configuration; the fork is one version of its engine."""
    version = imported.engine.get("version")
    if named := next((one for one in generations() if one.version == version), None):
        return named.engine
    fork = next(one for one in generations() if lookup.older(one.version, PLUGIN_SINCE))
    if is_fork:
        imported.engine["version"] = fork.version
    if is_fork or _PLUGINS in inner:
        return fork.engine
    return "vllm-neuron" if _VLLM_NEURONS in inner else ANY_ENGINE


def _speculation(imported: Imported, own: dict[str, Any], is_fork: bool) -> None:
    """The method that NxD Inference's own keys mean, which are left out: a recipe's method says it.

    That drafting is not fused stays: it is another way to run the same method.
    """
    given = [key for key in DRAFTING_KEYS if key in own and (own[key] or key != "enable_fused_speculation")]
    drafting = {key: own.pop(key) for key in given}
    for key, value in drafting.items():
        imported.leave_out(f"{key}: {value}", "`speculation` says how it drafts")
    if not imported.speculation:
        return
    if drafting.get("is_eagle3"):
        imported.speculation["method"] = "eagle3"
    elif drafting.get("enable_eagle_speculation"):
        imported.speculation["method"] = "eagle"  # which no engine here has, as `check` says
    elif drafting.get("is_medusa"):
        imported.speculation["method"] = "medusa"
    elif is_fork:
        imported.speculation["method"] = "draft-model"  # its `method: eagle` only has to pass vLLM's own check
    for key in [key for key in imported.speculation if key not in _DRAFTER_KEYS]:
        imported.leave_out(
            f"{key}: {imported.speculation.pop(key)} of the speculative config", "on Trainium a recipe has none"
        )
