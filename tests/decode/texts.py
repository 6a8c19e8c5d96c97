"""What the engine is held to: the plain model, which reads the whole text again for every token.

Nothing here has a cache, a page or a batch. Models have weights so large that every token of the past matters.
"""

import math
from functools import cache

import numpy as np
import torch

from regard.decode import Hypothesis, Sampling
from regard.decode.requests import Request
from regard.decode.sample import filter_logits, sample_token, until
from regard.nn.patches import sides
from regard.registry import models
from regard.tasks.streaming import Engine
from tests.laws.cases import SMALL, make

VOCAB, ENDS, FORBIDDEN = 31, (5,), (7, 23)

KERNELS = [
    "window:radius=2,chunk=3",
    "sparse:radius=1,stride=3,far=2,tokens=2,chunk=2",
    "linear:chunk=4",
    "performer:features=8,chunk=3",
    "topk:k=3,chunk=4",
    "additive",
]
WRITERS = [family for family in SMALL if hasattr(models[family], "step")]
CASES = [
    *(f"{family}-{number}" for family in WRITERS for number in range(len(SMALL[family]))),
    *(f"gpt+{kernel}" for kernel in KERNELS),
]
"""Every small model that writes, and GPT with kernels that keep something else than all keys and values."""
REVERSIBLE = ["gpt-5", "transformer-6"]
SHARING = ["gpt-8", "transformer-7"]
"""Those whose queries, keys and values share matrices."""
BY_PAGES = [
    case for case in CASES if case.split("-")[0] in ("gpt", "transformer", "t5") and case not in (*REVERSIBLE, *SHARING)
]
"""Those that are programs over pages."""
SPARSE = f"gpt+{KERNELS[1]}"


def build_model(case: str):
    """A model with weights that no training would give: its texts are lively."""
    torch.manual_seed(40 + CASES.index(case))
    if "+" in case:
        model = make("gpt", 0, kernel=case.split("+")[1], position="rotary", vocab_size=VOCAB)
    else:
        family, number = case.split("-")
        model = make(family, int(number), vocab_size=VOCAB)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(2 * noise / parameter.shape[1] ** 0.5 if parameter.dim() > 1 else parameter + 0.3 * noise)
    return model


@cache
def model_of(case: str, dtype: torch.dtype = torch.float64):
    return build_model(case).to(dtype)


def reads_source(model) -> bool:
    return "source" in model.reads


def source_of(ids) -> dict:
    """The inputs of a request with this source."""
    return {"source": torch.tensor(ids, dtype=torch.long)}


def picture_for(model, noise: np.random.Generator) -> dict:
    """A picture, if the model reads one."""
    if "pixels" not in model.reads:
        return {}
    like, config = next(model.parameters()), model.config
    pixels = torch.from_numpy(noise.standard_normal((config.channels, *sides(config.image)))).to(like)
    return dict(inputs={"pixels": pixels})


def requests_for(model, *, seed: int = 0) -> list[Request]:
    """Greedy, drawn and searched texts; some begin alike, some have the same source."""
    noise = np.random.default_rng(seed)
    ids = lambda length: noise.integers(VOCAB, size=length).tolist()  # noqa: E731
    common, source = ids(8), ids(6)
    how = [
        dict(),
        dict(sampling=Sampling(temperature=1.3, top_p=0.9, seed=3), row=4),
        dict(beams=3, n_best=2),
        dict(sampling=Sampling(temperature=2.0, top_k=7, seed=3), force_end=True),
        dict(beams=2, n_best=2, length_penalty=0.4, force_end=True, early_stopping="never"),
        dict(force_end=True, ends=()),
        dict(beams=4, early_stopping=True, forbidden=()),
    ]
    made = []
    for number, own in enumerate(how):
        prompt = [*common[: noise.integers(4, 9)], *ids(noise.integers(1, 9))] if number % 2 else ids(1 + number)
        given: dict = dict(prompt=prompt, ends=ENDS, forbidden=FORBIDDEN, max_len=int(noise.integers(4, 11)))
        if reads_source(model):
            own_source = source if number % 3 == 1 else ids(noise.integers(1, 11))
            given |= dict(prompt=prompt[:5], inputs=source_of(own_source))
        given |= picture_for(model, np.random.default_rng(number % 3))  # some are the same
        made.append(Request(**given | own))
    return made


@torch.inference_mode()
def scores_after(model, request: Request, written: list[list[int]]) -> torch.Tensor:
    """Of the next token behind each of some texts, which have one length: N T V for the T − 1 written before it too.

    Forbidden tokens have none.
    """
    texts = torch.tensor([[*request.prompt, *ids] for ids in written])
    if "pixels" in request.inputs:
        scores = model(request.inputs["pixels"].expand(len(texts), -1, -1, -1), texts)
    elif "source" not in request.inputs:
        scores = model(texts)
    else:
        source = request.inputs["source"].expand(len(texts), -1)
        scores = model(source, torch.full((len(texts),), source.shape[1]), texts)
    log_probs = scores[:, len(request.prompt) - 1 :].double().log_softmax(dim=-1)
    log_probs[:, :, list(request.forbidden)] = -math.inf
    return log_probs


def pick(request: Request, log_probs: torch.Tensor, noise: float) -> int:
    if request.sampling is None:
        return int(log_probs.argmax())
    kept = filter_logits(log_probs[None], request.sampling)
    return int(sample_token(kept, torch.tensor([noise], dtype=torch.float64)))


def noise_of(request: Request) -> np.ndarray:
    seed = request.sampling.seed if request.sampling else 0
    return np.random.default_rng([seed, request.row]).random(request.max_len)


def written_by(model, request: Request) -> tuple[list[int], list[float]]:
    """One text, token by token, and their log-probabilities."""
    ids: list[int] = []
    found: list[float] = []
    for noise in noise_of(request)[: request.max_len - request.force_end]:
        log_probs = scores_after(model, request, [ids])[0, -1]
        ids.append(pick(request, log_probs, noise))
        found.append(float(log_probs[ids[-1]]))
        if ids[-1] in request.ends:
            break
    return ids, found


def searched_by(model, request: Request) -> list[Hypothesis]:
    """Beam search as it is told in words, with lists."""
    W, most, penalty = request.beams, request.max_len, request.length_penalty
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, most + 1):
        rows = scores_after(model, request, [ids for _, ids in running])[:, -1].tolist()
        every = [
            (total + row[id], [*ids, id])
            for (total, ids), row in zip(running, rows, strict=True)
            for id in range(VOCAB)
        ]
        best = sorted(every, reverse=True)[: 2 * W]
        ended += [(total / length**penalty, ids) for total, ids in best[:W] if ids[-1] in request.ends]
        ended = sorted(ended, reverse=True)[:W]
        running = [(total, ids) for total, ids in best if ids[-1] not in request.ends][:W]
        reach = most if request.early_stopping == "never" and penalty > 0 else length
        hopeful = len(ended) < W
        if request.early_stopping is not True:
            hopeful = hopeful or running[0][0] / reach**penalty > ended[-1][0]
        if length == most or (hopeful and length == most - request.force_end):
            ended += [(total / most**penalty, ids) for total, ids in running]
            ended = sorted(ended, reverse=True)[:W]
            break
        if not hopeful or length == most - request.force_end:
            break
    return [Hypothesis(ids=until(request.ends, ids), score=score) for score, ids in ended[: request.n_best]]


@cache
def wanted_of(case: str, seed: int = 0):
    """Requests, and what the plain model answers to them in float64: texts or searches."""
    model = model_of(case)
    asked = requests_for(model, seed=seed)
    return asked, [searched_by(model, one) if one.beams > 1 else written_by(model, one) for one in asked]


def check_equal(asked, tickets, wanted) -> None:
    """The very same tokens, and their probabilities to the last digits."""
    for request, ticket, want in zip(asked, tickets, wanted, strict=True):
        found = ticket.result()
        if request.beams > 1:
            assert [one.ids for one in found] == [one.ids for one in want], request
            np.testing.assert_allclose([one.score for one in found], [one.score for one in want], atol=1e-9)
        else:
            assert ticket.ids == want[0], request
            np.testing.assert_allclose(ticket.log_probs, want[1], atol=1e-9)
            assert [one.ids for one in found] == [until(request.ends, want[0])]


def check_near(case: str, asked, tickets, wanted, near: float = 1e-3) -> None:
    """The same tokens, except where scores that differ by at most `near` would give the other ones."""
    model, random = model_of(case), torch.Generator().manual_seed(0)
    for request, ticket, want in zip(asked, tickets, wanted, strict=True):
        found = ticket.result()
        if request.beams > 1:
            same = [one.ids for one in found] == [one.ids for one in want]
            gap = max(abs(a.score - b.score) for a, b in zip(found, want, strict=True))
            assert gap < near, (same, request)
            continue
        assert len(ticket.log_probs) == len(ticket.ids)
        along = scores_after(model, request, [ticket.ids[:-1]])[0]
        for place, (id, log_probs, noise) in enumerate(zip(ticket.ids, along, noise_of(request), strict=False)):
            assert abs(float(log_probs[id]) - ticket.log_probs[place]) < near
            if id != pick(request, log_probs, noise):
                moved = (log_probs + near * (torch.rand(VOCAB, generator=random) - 0.5) for _ in range(300))
                assert id in {pick(request, scores, noise) for scores in moved}, request
        ended = ticket.ids[-1] in request.ends or len(ticket.ids) == request.max_len - request.force_end
        assert ended and not set(ticket.ids[:-1]) & set(request.ends)


def engine_for(model, *, pages: int | None = None, page: int = 16, fast: bool | None = False, **sizes) -> Engine:
    """An engine; with `pages`, one with so many of them."""
    if pages is None:
        return Engine(model, page=page, fast=fast, **sizes)
    probe = Engine(model, page=page, memory=1, fast=fast, max_batch=1).runner
    one = probe.pool[:, 0].nbytes if probe.paged else 8 * page * model.config.dim * model.config.depth
    return Engine(model, page=page, memory=one * pages, fast=fast, **sizes)


def check_empty(engine: Engine) -> None:
    """Nobody is there, and nothing is held."""
    assert not engine.running and not engine.waiting and not engine.chooser.searches
    assert engine.pages.held == 0 and not engine.pages.holders.any() and not engine.tables.counts.any()
    assert sorted(engine.scheduler.free_slots) == list(range(engine.max_batch))
    assert engine.runner.paged or not engine.runner.homes
