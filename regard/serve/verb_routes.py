"""POST /v1/VERB for every verb of a served model that has no route of its own, those of plugins included."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field, create_model

from regard.modalities import Modality
from regard.serve import replies
from regard.serve.answers import reply
from regard.serve.errors import Refused
from regard.serve.inputs import answer, check_inputs, listed
from regard.serve.model_store import ModelStore
from regard.serve.schemas import MOST_TEXTS, Body, Text, Texts, item_field
from regard.serve.state import state_of
from regard.tasks.base import Option, Verb


def verbs_without_route(store: ModelStore, abilities: Collection[str]) -> dict[str, tuple[Verb, dict[str, Modality]]]:
    """The verbs of the served models that are none of these abilities, each with the modalities that they read by the
    field of a request; options of verbs of one name are joined."""
    verbs: dict[str, tuple[Verb, dict[str, Modality]]] = {}
    for served in store:
        for verb in [served.verbs[name] for name in served.does if name in served.verbs and name not in abilities]:
            known, read = verbs.get(verb.name, (verb, {}))
            options = {option.name: option for option in (*verb.options, *known.options)}
            joined = replace(verb, options=tuple(options.values()))
            verbs[verb.name] = joined, read | {served.modality.field: served.modality}
    return verbs


def field_of(option: Option) -> tuple[Any, Any]:
    """The type and the default of an option in the schema of a request."""
    several: Any = Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    known: dict[Any, Any] = {str: Text, tuple: several, list: several}
    type_: Any = Texts if option.each else known.get(option.kind, option.kind)
    if option.limits is not None:
        type_ = Annotated[type_, Field(ge=option.limits[0], le=option.limits[1])]
    return (type_ | None if option.default is None else type_), Field(option.default, description=option.help)


def add_route(router: APIRouter, verb: Verb, read: Mapping[str, Modality]) -> None:
    """Add POST /v1/VERB: inputs and the verb's options in, a row for each input out. A single input may also be sent
    in the field of its modality."""
    about = "A text, or a file as a data: URI, whichever the model reads; or a list of them."
    known = {option.name: option for option in verb.options if option.kind is not Path}
    fields: dict[str, Any] = {name: field_of(option) for name, option in known.items()}
    fields |= {field: item_field(record) for field, record in read.items()}
    fields["input"] = Texts | None, Field(None, description=about)
    schema = create_model(f"{verb.name.title()}Request", __base__=Body, **fields)

    async def route(body: schema, request: Request) -> Response:  # type: ignore[valid-type]
        sent: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}  # type: ignore[attr-defined]
        served = await state_of(request).store.take(request.scope, sent["model"], verb.name)
        options = {name: value for name, value in sent.items() if name in known and value is not None}
        for name in options.keys() - served.options(verb.name):
            raise Refused(400, f"model {served.name!r} takes no {name}; leave it out", param=name)
        paired = {name: listed(options.pop(name)) for name in [*options] if known[name].each}
        field = served.modality.field
        if [name for name in ("input", *read) if sent.get(name) is not None] not in (["input"], [field]):
            reads = f"model {served.name!r} reads {served.modality.plural}"
            raise Refused(400, f"{reads}; send either input or {field}", param="input")
        for name, value in (paired | options).items():
            texts = listed(value) if isinstance(value, str | list) else []
            served.check_length([text for text in texts if isinstance(text, str)], name, parts=True)
        if sent.get("input") is None:
            if isinstance(sent[field], str) and not served.modality.files:
                served.check_length([sent[field]], field)
            answers = await answer(request, served, verb.name, [sent[field]], options, paired, field=field)
        else:
            answers = await answer(request, served, verb.name, check_inputs(served, sent["input"]), options, paired)
        return await reply(lambda: answers)

    router.add_api_route(
        f"/{verb.name}", route, methods=["POST"], summary=verb.name.title(), description=verb.help or verb.does,
        **replies.documented(replies.ListOf[replies.Answer]),
    )  # fmt: skip
