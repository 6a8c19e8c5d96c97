"""POST /v1/VERB for every verb of a served model that has no route of its own, those of plugins included."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, create_model

from regard.serve import replies
from regard.serve.errors import Refused
from regard.serve.inputs import answer, listed
from regard.serve.model_store import ModelStore
from regard.serve.schemas import MOST_TEXTS, Body, Text, Texts
from regard.serve.state import state_of
from regard.tasks.base import Option, Verb


def verbs_without_route(store: ModelStore, abilities: Collection[str]) -> list[Verb]:
    """The verbs of the served models that are none of these abilities; options of verbs of one name are joined."""
    verbs: dict[str, Verb] = {}
    for served in store:
        for verb in [served.verbs[name] for name in served.does if name in served.verbs and name not in abilities]:
            options = {option.name: option for option in (*verb.options, *verbs.get(verb.name, verb).options)}
            verbs[verb.name] = replace(verb, options=tuple(options.values()))
    return list(verbs.values())


def field_of(option: Option) -> tuple[Any, Any]:
    """The type and the default of an option in the schema of a request."""
    several: Any = Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    known: dict[Any, Any] = {str: Text, tuple: several, list: several}
    type_: Any = Texts if option.each else known.get(option.kind, option.kind)
    if option.limits is not None:
        type_ = Annotated[type_, Field(ge=option.limits[0], le=option.limits[1])]
    return (type_ | None if option.default is None else type_), Field(option.default, description=option.help)


def add_route(router: APIRouter, verb: Verb) -> None:
    """Add POST /v1/VERB: inputs and the verb's options in, a row for each input out."""
    about = "A text, or an image as a data: URI, whichever the model reads; or a list of them."
    known = {option.name: option for option in verb.options if option.kind is not Path}
    fields: dict[str, Any] = {name: field_of(option) for name, option in known.items()}
    fields["input"] = Texts, Field(description=about)
    schema = create_model(f"{verb.name.title()}Request", __base__=Body, **fields)

    async def route(body: schema, request: Request) -> dict[str, Any]:  # type: ignore[valid-type]
        sent: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}  # type: ignore[attr-defined]
        served = await state_of(request).store.take(sent["model"], verb.name)
        options = {name: value for name, value in sent.items() if name in known and value is not None}
        for name in options.keys() - served.options(verb.name):
            raise Refused(400, f"model {served.name!r} takes no {name}; leave it out", param=name)
        paired = {name: listed(options.pop(name)) for name in [*options] if known[name].each}
        return await answer(request, served, verb.name, sent["input"], options, paired)

    router.add_api_route(
        f"/{verb.name}", route, methods=["POST"], summary=verb.name.title(), description=verb.help or verb.does,
        **replies.documented(replies.ListOf[replies.Answer]),
    )  # fmt: skip
