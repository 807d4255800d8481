"""One schema of all that a recipe file may say, from the sections that platforms and engines declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from typing import Annotated, Any, Union, get_args

from pydantic import Field, StrictStr, create_model
from pydantic.fields import FieldInfo

from toolkit.recipe.schema import RecipeFile
from toolkit.recipe.section import Section, one_of

Sections = Mapping[str, type[Section]]
"""What a platform or an engine reads of a recipe, by the section's key: keys that its class lacks have no effect."""


def assemble(platforms: Mapping[str, Sections], engines: Mapping[str, Sections], about: str) -> type[RecipeFile]:
    """The schema of a recipe for these platforms and engines, the default one first; `about` says what those are."""
    declared = [*platforms.values(), *engines.values()]
    named = {"platform": {"name": _platform_name(platforms)}, "engine": {"name": _engine_name(engines, about)}}
    keys = dict.fromkeys(key for sections in declared for key in sections)
    merged = {key: _merge(key, [each[key] for each in declared if key in each], named.get(key, {})) for key in keys}
    fields: dict[str, Any] = {key: _field(key, kind) for key, kind in merged.items()}
    return create_model("RecipeFile", __base__=RecipeFile, __module__=__name__, **fields)


def _field(key: str, kind: type[Section]) -> tuple[Any, FieldInfo | Section]:
    """The key as it is, for this class of its section: one that may be left out keeps its defaults."""
    field = copy(RecipeFile.model_fields[key])
    if isinstance(field.default, Section):
        return kind, kind.model_construct()
    others = [part for part in get_args(field.annotation) if part is not section_of(RecipeFile, key)]
    return Union[kind, *others], field


def _merge(key: str, kinds: list[type[Section]], named: Mapping[str, Any]) -> type[Section]:
    """One class with the keys of all of them."""
    base = section_of(RecipeFile, key)
    once = list(dict.fromkeys(kinds))
    lowest = [kind for kind in once if not any(other is not kind and issubclass(other, kind) for other in once)]
    return create_model(base.__name__, __base__=tuple(lowest), __module__=__name__, __doc__=base.__doc__, **named)


def _platform_name(platforms: Mapping[str, Sections]) -> Any:
    names = tuple(platforms)
    what = "`local`: AWS rehearsed on this machine; `sagemaker`; or `kubernetes`, such as an EKS cluster"
    return (
        Annotated[StrictStr, one_of(lambda: names), Field(json_schema_extra={"enum": list(names)})],
        Field(description=what),
    )


def _engine_name(engines: Mapping[str, Sections], about: str) -> Any:
    names = tuple(engines)
    extra: dict[str, Any] = {"default": names[0], "enum": list(names)}
    name = Annotated[StrictStr, one_of(lambda: names), Field(json_schema_extra=extra)]
    return name, Field(names[0], description=about)


def section_of(schema: type[RecipeFile], key: str) -> type[Section]:
    """The class of the section with that key."""
    annotation = schema.model_fields[key].annotation
    classes = (part for part in (annotation, *get_args(annotation)) if isinstance(part, type))
    return next(part for part in classes if issubclass(part, Section))


def names(schema: type[RecipeFile], section: str) -> Sequence[str]:
    """The names that the section `platform` or `engine` may have, the default one first."""
    said: Any = section_of(schema, section).model_fields["name"].json_schema_extra
    return tuple(said["enum"])


@cache
def recipe_keys(schema: type[RecipeFile]) -> frozenset[str]:
    """Every key that some section of a recipe has."""
    return frozenset(_keys(json_schema(schema)))


def _keys(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        yield from part.get("properties", {})
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _keys(each)


def json_schema(schema: type[RecipeFile]) -> dict[str, Any]:
    """The JSON schema of a recipe file, for editors; committed as recipe.schema.json."""
    for field in schema.model_fields.values():
        if isinstance(field.default, Section):
            type(field.default).model_rebuild()  # pydantic before 2.14 shows no default of a class that is not built
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema.model_json_schema()}
