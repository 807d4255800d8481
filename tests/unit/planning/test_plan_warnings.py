"""What `check` warns of, a plan tells too: it is the last thing that is read before money is spent."""

from __future__ import annotations

from pathlib import Path

from aws_in_memory import ON_AWS, aws_in_memory
from pairs import write_pair

import toolkit
from toolkit.apply.progress import Silent
from toolkit.findings import Finding


def test_a_plan_tells_each_warning_of_check() -> None:
    recipe = "qwen3-32b/draft-model-trn2-eks"
    warned = [finding for finding in toolkit.check(recipe).findings if finding.severity == "warning"]
    assert warned
    notes = [note for note in toolkit.plan(recipe).notes if note.startswith("Warning: ")]
    assert notes == [f"Warning: {finding.sentence}" for finding in warned]
    assert notes[0].startswith("Warning: platform.instance_types.0: nxd-inference ")
    assert notes[0].endswith("Then write `kubernetes: {neuron_driver: 2.28.0.0}`. [neuron.driver]")


def test_a_warning_on_the_whole_recipe_without_a_hint_is_a_sentence_too() -> None:
    assert Finding("a.code", "all is odd").sentence == "all is odd [a.code]"


def test_an_endpoint_of_another_recipe_is_not_changed_without_a_word(tmp_path: Path) -> None:
    """Who copies a recipe may forget its name."""
    recipe = write_pair(tmp_path)
    recipe.write_text(ON_AWS)
    copied = recipe.with_name("copied.yaml")
    copied.write_text(ON_AWS.replace("max_model_len: 1024", "max_model_len: 512"))
    said = f"tiny was deployed from {recipe}. If both shall serve, give one of them another `name:`"
    with aws_in_memory():
        toolkit.deploy(recipe, progress=Silent())
        assert said in toolkit.plan(copied).notes
        recipe.write_text(copied.read_text())
        assert said not in toolkit.plan(recipe).notes
