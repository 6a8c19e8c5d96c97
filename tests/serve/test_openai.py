"""The official client of OpenAI against a real server: what it asks for, what it gets, and its own error classes."""

import asyncio
import math
import struct

import openai
import pytest
import torch

from regard.decode import Sampling
from tests.serve.made import CONTEXT, LONG
from tests.serve.running import serving_here

transformers = pytest.importorskip("transformers")

PROMPT = "The cat sat on"
ASKED = [
    {"role": "system", "content": "größer 😀"},
    {"role": "user", "content": "the mat <eos>?"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "more"},
]


@pytest.fixture(scope="module")
def theirs(made):
    """The chat model as its authors' library reads it: another implementation of everything."""
    return (
        transformers.AutoTokenizer.from_pretrained(made["chat"]),
        transformers.LlamaForCausalLM.from_pretrained(made["chat"]).eval(),
    )


def complete(client, **changes):
    return client.completions.create(**dict(model="gpt", prompt=PROMPT, max_tokens=12, temperature=0) | changes)


def chat(client, **changes):
    return client.chat.completions.create(**dict(model="chat", messages=ASKED, max_tokens=12, temperature=0) | changes)


# ---- completions ------------------------------------------------------------------------------------------------


def test_models(client, made):
    listed = client.models.list().data
    assert [one.id for one in listed] == list(made) and {one.owned_by for one in listed} == {"regard"}
    one = client.models.retrieve("chat")
    assert (one.id, one.object, one.does, one.context) == ("chat", "model", ["generate", "chat", "look"], CONTEXT)
    with pytest.raises(openai.NotFoundError, match="did you mean 'gpt'"):
        client.models.retrieve("gtp")


@pytest.mark.parametrize("model", ["gpt", "endless", "t5", "chat"])
def test_a_greedy_completion_is_that_of_python(client, loaded, model):
    found = complete(client, model=model)
    assert found.choices[0].text == loaded[model].generate([PROMPT], max_new_tokens=12)[0]
    assert found.object == "text_completion" and found.id.startswith("cmpl-") and found.model == model
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_usage_counts_tokens(client, loaded):
    prompt = len(loaded["endless"].tokenizer.encode(PROMPT))
    found = complete(client, model="endless", n=3, temperature=1).usage
    assert (found.prompt_tokens, found.completion_tokens, found.total_tokens) == (prompt, 36, prompt + 36)
    several = complete(client, model="endless", prompt=[PROMPT, PROMPT + " the"]).usage
    assert several.prompt_tokens == 2 * prompt + 1 and several.completion_tokens == 24


def test_several_prompts_and_ids(client, loaded):
    encode = loaded["gpt"].tokenizer.encode
    texts = [PROMPT, "a", "Die Katze"]
    wanted = loaded["gpt"].generate(texts, max_new_tokens=12)
    for prompt in (texts, [encode(text) for text in texts]):
        found = complete(client, prompt=prompt)
        assert [one.text for one in found.choices] == wanted and [one.index for one in found.choices] == [0, 1, 2]
    assert complete(client, prompt=encode(PROMPT)).choices[0].text == wanted[0]


def test_an_empty_prompt_is_bos(client, loaded):
    assert complete(client, prompt="").choices[0].text == loaded["gpt"].generate([""], max_new_tokens=12)[0]


def test_a_seed_gives_the_same_text(client, loaded):
    how = dict(model="endless", temperature=1.5, top_p=0.9, n=3)
    first, again, other = (complete(client, **how, seed=seed) for seed in (7, 7, 8))
    texts = [one.text for one in first.choices]
    assert texts == [one.text for one in again.choices] and len(set(texts)) == 3
    assert texts != [one.text for one in other.choices]
    sampling = Sampling(temperature=1.5, top_p=0.9, seed=7)
    assert texts == loaded["endless"].generate([PROMPT] * 3, max_new_tokens=12, sampling=sampling)
    unseeded = {complete(client, **how).choices[0].text for _ in range(2)}
    assert len(unseeded) == 2, "texts that nobody gave a seed differ"
    assert complete(client, **how, seed=-1).choices[0].text == complete(client, **how, seed=-1).choices[0].text


def test_other_ways_to_sample(client, loaded):
    for how in (dict(top_k=3), dict(min_p=0.2)):
        wanted = loaded["endless"].generate([PROMPT], max_new_tokens=12, sampling=Sampling(seed=3, **how))
        found = complete(client, model="endless", temperature=1, seed=3, extra_body=how)
        assert found.choices[0].text == wanted[0]
    assert complete(client, temperature=2, top_p=0).choices[0].text == complete(client).choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_stops(client, stream):
    whole = complete(client, model="endless", max_tokens=60).choices[0].text
    stop = whole[20:23]
    found = complete(client, model="endless", max_tokens=60, stop=[stop, "never so"], stream=stream)
    if stream:
        chunks = list(found)
        text, finish = "".join(one.choices[0].text for one in chunks), chunks[-1].choices[0].finish_reason
    else:
        text, finish = found.choices[0].text, found.choices[0].finish_reason
    assert text == whole.partition(stop)[0] and finish == "stop"
    assert complete(client, model="endless", stop=whole[:1]).choices[0].text == ""


def test_the_end_of_the_context_and_of_a_text(client, loaded):
    found = complete(client, max_tokens=10**9, temperature=0)
    (choice,) = found.choices
    assert choice.finish_reason == "length" and found.usage.total_tokens == CONTEXT
    ended = complete(client, model="gpt", temperature=2, n=64, seed=1, max_tokens=50).choices
    assert {one.finish_reason for one in ended} == {"stop", "length"}, "some reach EOS"


def log_softmax_along(loaded, ids, count):
    """Of each of the last `count` ids, by the model's own forward pass."""
    with torch.inference_mode():
        return loaded.model(torch.tensor([ids]))[0, -count - 1 : -1].log_softmax(dim=-1)


@pytest.mark.parametrize("temperature", [0, 1.3])
def test_log_probabilities_are_those_of_the_model(client, loaded, temperature):
    one = loaded["endless"]
    found = complete(client, model="endless", max_tokens=40, temperature=temperature, logprobs=5, seed=1)
    told, text = found.choices[0].logprobs, found.choices[0].text
    spelled = {Shown(one).text(id): id for id in range(len(one.tokenizer))}
    ids = [spelled[token] for token in told.tokens]
    assert len(ids) == 40 and one.continuation(one.encode(PROMPT), ids) == text
    along = log_softmax_along(one, [*one.encode(PROMPT), *ids], 40)
    wanted = along[range(40), ids]
    torch.testing.assert_close(torch.tensor(told.token_logprobs), wanted, atol=2e-4, rtol=1e-4)
    assert sum(told.token_logprobs) == pytest.approx(float(wanted.sum()), abs=5e-3)
    along = along.index_fill(1, torch.tensor(one.generation["forbidden"]), -math.inf)
    for place, likely in enumerate(told.top_logprobs):
        best = along[place].topk(5)
        assert len(likely) == 5
        torch.testing.assert_close(torch.tensor(list(likely.values())), best.values, atol=2e-4, rtol=1e-4)
        if temperature == 0:
            assert next(iter(likely)) == told.tokens[place]
    offsets = [*told.text_offset, len(text)]
    assert offsets[0] == 0 and offsets == sorted(offsets)


class Shown:
    """Tokens as the API spells them, told once more here."""

    def __init__(self, loaded):
        self.bytes_of = loaded.tokenizer.bytes_of

    def text(self, id):
        raw = self.bytes_of(id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def test_log_probabilities_without_others(client):
    told = complete(client, logprobs=0).choices[0].logprobs
    assert len(told.token_logprobs) == 12 and all(not likely for likely in told.top_logprobs)
    assert complete(client).choices[0].logprobs is None


def test_echo(client):
    plain, echoed = complete(client), complete(client, echo=True)
    assert echoed.choices[0].text == PROMPT + plain.choices[0].text
    stream = [one.choices[0].text for one in complete(client, echo=True, stream=True)]
    assert "".join(stream) == echoed.choices[0].text
    with pytest.raises(openai.BadRequestError, match="echo does not go with logprobs"):
        complete(client, echo=True, logprobs=1)


def test_pieces_of_a_stream_joined_are_the_whole(client):
    how = dict(model="endless", temperature=1.2, seed=5, n=3, max_tokens=50, prompt=[PROMPT, "日本"], logprobs=2)
    whole = complete(client, **how)
    texts, finished, log_probs, last = {}, {}, {}, None
    for chunk in complete(client, **how, stream=True, stream_options={"include_usage": True}):
        last = chunk
        for one in chunk.choices:
            assert one.index not in finished and chunk.usage is None
            texts[one.index] = texts.get(one.index, "") + one.text
            log_probs.setdefault(one.index, []).extend(one.logprobs.token_logprobs)
            if one.finish_reason:
                finished[one.index] = one.finish_reason
    assert texts == {one.index: one.text for one in whole.choices} and len(texts) == 6
    assert finished == {one.index: one.finish_reason for one in whole.choices}
    assert last.choices == [] and last.usage == whole.usage
    for one in whole.choices:
        assert log_probs[one.index] == pytest.approx(one.logprobs.token_logprobs, abs=1e-3)


def test_leaving_a_stream(server, client):
    with complete(client, model="endless", max_tokens=LONG, stream=True, n=20) as stream:
        for _ in range(3):
            assert next(iter(stream)).choices
    server.wait_until_idle("endless")
    assert complete(client).choices[0].finish_reason == "length"


def test_the_asynchronous_client(server, loaded):
    async def talk():
        async with openai.AsyncOpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0) as client:

            async def one(prompt):
                stream = await client.completions.create(
                    model="gpt", prompt=prompt, max_tokens=12, temperature=0, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            async def leaves():
                stream = await client.completions.create(
                    model="endless", prompt="a", max_tokens=LONG, temperature=0, stream=True
                )
                async for _ in stream:
                    break
                await stream.close()

            vector = client.embeddings.create(model="embed", input="a")
            return await asyncio.gather(*map(one, prompts), leaves(), vector)

    prompts = [PROMPT, "a", "Die Katze", "the horse"] * 3
    *texts, _, vector = asyncio.run(talk())
    assert texts == loaded["gpt"].generate(prompts, max_new_tokens=12) and len(vector.data[0].embedding) == 24
    server.wait_until_idle("endless", "gpt")


# ---- chat -------------------------------------------------------------------------------------------------------


def test_chat_is_what_their_own_library_says(client, theirs):
    """Template, tokenizer and model by transformers: the same prompt, the same answer, the same probabilities."""
    tokenizer, model = theirs
    prompt = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True, return_dict=False)
    found = chat(client, logprobs=True, top_logprobs=4)
    assert found.usage.prompt_tokens == len(prompt)
    (choice,) = found.choices
    told = choice.logprobs.content
    with torch.inference_mode():
        written = model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, bad_words_ids=[[0]], pad_token_id=0
        )[0, len(prompt) :].tolist()
        along = model(torch.tensor([prompt + written])).logits[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
    assert choice.message.role == "assistant"
    assert choice.message.content == tokenizer.decode(written, skip_special_tokens=True)
    spelled = [bytes(one.bytes) for one in told]
    assert b"".join(spelled).decode(errors="replace") == choice.message.content
    wanted = along[range(len(written)), written][: len(told)]
    torch.testing.assert_close(torch.tensor([one.logprob for one in told]), wanted, atol=2e-4, rtol=1e-4)
    for place, one in enumerate(told):
        assert len(one.top_logprobs) == 4 and one.top_logprobs[0].token == one.token
        best = along[place].index_fill(0, torch.tensor([0]), -math.inf).topk(4).values
        torch.testing.assert_close(torch.tensor([o.logprob for o in one.top_logprobs]), best, atol=2e-4, rtol=1e-4)


def test_chat_in_parts_and_to_the_end_of_the_context(client):
    parts = [one | {"content": [{"type": "text", "text": one["content"]}]} for one in ASKED]
    assert chat(client, messages=parts).choices[0].message == chat(client).choices[0].message
    found = client.chat.completions.create(model="chat", messages=ASKED, temperature=0)
    assert found.choices[0].finish_reason == "stop" or found.usage.total_tokens == CONTEXT
    shorter = client.chat.completions.create(model="chat", messages=ASKED, temperature=0, max_completion_tokens=5)
    assert shorter.usage.completion_tokens == 5


def test_pieces_of_a_chat_joined_are_the_whole(client):
    how = dict(temperature=1, seed=2, n=2, logprobs=True, top_logprobs=2, stop=["\n\n\n"])
    whole = chat(client, **how)
    said, roles, finished, tokens = {}, [], {}, {}
    chunks = list(chat(client, **how, stream=True, stream_options={"include_usage": True}))
    assert {one.object for one in chunks} == {"chat.completion.chunk"} and len({one.id for one in chunks}) == 1
    for one in (one for chunk in chunks for one in chunk.choices):
        roles += [(one.index, one.delta.role)] if one.delta.role else []
        said[one.index] = said.get(one.index, "") + (one.delta.content or "")
        tokens.setdefault(one.index, []).extend(token.token for token in one.logprobs.content)
        finished |= {one.index: one.finish_reason} if one.finish_reason else {}
    assert sorted(roles) == [(0, "assistant"), (1, "assistant")], "each text says once who speaks"
    assert said == {one.index: one.message.content for one in whole.choices}
    assert tokens == {one.index: [token.token for token in one.logprobs.content] for one in whole.choices}
    assert finished == {one.index: one.finish_reason for one in whole.choices}
    assert chunks[-1].usage == whole.usage


def test_the_clients_own_stream_of_a_chat(client):
    how = dict(model="chat", messages=ASKED, temperature=0, max_tokens=12)
    with client.chat.completions.stream(**how, stop=[chat(client).choices[0].message.content[5:7]]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == chat(client).choices[0].message.content[:5]


# ---- embeddings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_embeddings(client, loaded, form):
    texts = ["The cat", "größer, schöner", "", "😀" * 9]
    how = {} if form is None else {"encoding_format": form}
    found = client.embeddings.create(model="embed", input=texts, **how)
    rows = [one.embedding for one in found.data]
    if form == "base64":
        import base64

        rows = [list(struct.unpack("<24f", base64.b64decode(row))) for row in rows]
    torch.testing.assert_close(torch.tensor(rows), loaded["embed"].embed(texts), atol=1e-6, rtol=0)
    assert [one.index for one in found.data] == [0, 1, 2, 3]
    assert found.usage.prompt_tokens == sum(len(one) for one in loaded["embed"].frame(texts))


def test_embeddings_of_many_texts_are_those_of_each(client, loaded):
    texts = [f"the {number} birds " * (number % 5) for number in range(77)]
    found = client.embeddings.create(model="classify", input=texts)
    rows = torch.tensor([one.embedding for one in found.data])
    torch.testing.assert_close(rows, loaded["classify"].embed(texts), atol=1e-6, rtol=0)
    with pytest.raises(openai.BadRequestError, match="text 34 .* the context is 64; split it") as caught:
        client.embeddings.create(model="embed", input=["a"] * 33 + ["a 1 " * 40])
    assert caught.value.code == "context_length_exceeded"
    cut = client.embeddings.create(model="embed", input=["a 1 " * 40], extra_body={"truncate": True})
    torch.testing.assert_close(
        torch.tensor([cut.data[0].embedding]), loaded["embed"].embed(["a 1 " * 40]), atol=1e-6, rtol=0
    )


# ---- errors -----------------------------------------------------------------------------------------------------


def test_its_own_classes_of_errors(client):
    with pytest.raises(openai.NotFoundError, match="no model 'gtp' here; did you mean 'gpt'") as missing:
        complete(client, model="gtp")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="can embed and look, not generate; ask gpt or endless or t5"):
        complete(client, model="embed")
    with pytest.raises(openai.BadRequestError, match="context is 64; shorten it") as longer:
        complete(client, prompt="a 1 " * 50)
    assert longer.value.code == "context_length_exceeded" and longer.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError, match="context is 64"):
        chat(client, messages=[{"role": "user", "content": "a 1 " * 50}])
    with pytest.raises(openai.BadRequestError, match="unknown field 'max_tokns'; did you mean 'max_tokens'"):
        complete(client, extra_body={"max_tokns": 3})
    with pytest.raises(openai.BadRequestError, match="frequency_penalty is not supported here; leave it out"):
        complete(client, frequency_penalty=1)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        complete(client, temperature=3, stream=True)
    with pytest.raises(openai.APIStatusError, match="more than .* bytes; send less") as large:
        complete(client, prompt="a" * 5 * 2**20)
    assert large.value.status_code == 413


def test_errors_of_locks_limits_and_losses(made, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    for file in made["gpt"].iterdir():
        (gone / file.name).write_bytes(file.read_bytes())
    models = {"gpt": made["gpt"], "gone": gone, "endless": made["endless"]}
    with serving_here(models, api_keys=("right",), queue=2, max_batch=1) as server:
        server.headers = {"Authorization": "Bearer right"}
        with server.client("wrong") as stranger, pytest.raises(openai.AuthenticationError, match="API key is wrong"):
            stranger.models.list()
        (gone / "config.json").unlink()
        with server.client("right") as client:
            with pytest.raises(openai.InternalServerError, match="'gone' cannot be loaded: .*config.json") as lost:
                complete(client, model="gone")
            assert lost.value.status_code == 503 and lost.value.code == "model_unavailable"
            with (
                server.held("endless"),
                complete(client, model="endless", n=2, max_tokens=LONG, stream=True) as running,
            ):
                next(iter(running))
                with pytest.raises(openai.RateLimitError, match="too many requests are waiting") as crowd:
                    complete(client, model="endless", n=2)
            assert crowd.value.response.headers["retry-after"] == "1" and crowd.value.code == "queue_full"
            assert complete(client).choices[0].text
