"""Propose a recipe for a model, from its name: `toolkit new`.

    drafters   what may draft for the model: public heads, its own layers, smaller models, its text; the best first
    hardware   the instance types that hold the models, the cheapest first
    choose     the first drafter, engine version and instance type that all checks accept, with the reason of each
    text       the recipe as a file, with the reasons as comments
    command    a recipe from the command line of an engine; `documents`: from other tools' YAML

Nothing here uses a network: who calls passes in what the hub said.
"""
