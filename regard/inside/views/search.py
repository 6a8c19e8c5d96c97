"""The tree of a beam search: what each step considered, kept and dropped, and the path of greedy choice through it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from regard.decode.requests import Request
from regard.decode.tree import Tree, beam_tree
from regard.inside.draw.canvas import readable
from regard.inside.draw.tree import draw_tree
from regard.inside.views.base import Shown, View, register_view
from regard.tasks.prepared import Generation, Prepared

Node = tuple[int, int]
"""A candidate: the index of its step, and its rank there."""


def show_search(prepared: Prepared, beams: int | None = None) -> Shown:
    """Show the tree of a beam search, as wide as the model's own or of `beams`."""
    generation = prepared.generation
    assert generation is not None and generation.search is not None
    request = generation.search()
    request = request if beams is None else replace(request, beams=beams, n_best=1)
    tree = beam_tree(prepared.model, request)
    names = iter(prepared.names([candidate.id for step in tree.steps for candidate in step]))
    steps = [
        [
            {"token": next(names), "id": one.id, "origin": one.origin, "log_probability": round(one.log_prob, 5),
             "total": round(one.total, 5), "fate": one.fate, "beam": one.beam}
            for one in step
        ]
        for step in tree.steps
    ]  # fmt: skip
    paths = paths_of(tree)
    data = {
        "beams": request.beams, "length_penalty": request.length_penalty, "steps": steps,
        "prefix": list(prepared.names(request.prompt)), "hypotheses": hypotheses_of(tree, paths, request, generation),
        "greedy": greedy_of(tree, request, generation, prepared),
    }  # fmt: skip
    return data, lambda path: draw_tree(data, path)


def paths_of(tree: Tree) -> dict[tuple[int, ...], list[Node]]:
    """The nodes of every hypothesis that ended or ran to the last step, by its token ids, EOS included."""
    paths: dict[tuple[int, ...], list[Node]] = {}
    beams: dict[int | None, tuple[tuple[int, ...], list[Node]]] = {0: ((), [])}
    for number, step in enumerate(tree.steps):
        following: dict[int | None, tuple[tuple[int, ...], list[Node]]] = {}
        for rank, one in enumerate(step):
            ids, nodes = beams[one.origin]
            whole = ((*ids, one.id), [*nodes, (number, rank)])
            if one.fate == "kept":
                following[one.beam] = whole
            if one.fate == "ended" or one.fate == "kept" and number == len(tree.steps) - 1:
                paths[whole[0]] = whole[1]
        beams = following
    return paths


def hypotheses_of(
    tree: Tree, paths: Mapping[tuple[int, ...], list[Node]], request: Request, generation: Generation
) -> list[dict[str, Any]]:
    """The finished hypotheses, best first, with their ranks at each step."""
    rows = []
    for one in tree.hypotheses:
        keys = [(*one.ids, end) for end in request.ends] + [tuple(one.ids)]
        path = next((paths[key] for key in keys if key in paths), [])
        total = tree.steps[path[-1][0]][path[-1][1]].total if path else one.score
        rows.append({
            "text": generation.decode(one.ids), "score": round(one.score, 5), "log_probability": round(total, 5),
            "path": [rank for _, rank in path],
        })  # fmt: skip
    return rows


def greedy_of(tree: Tree, request: Request, generation: Generation, prepared: Prepared) -> dict[str, Any]:
    """The greedy sequence: its score as a hypothesis of the search, its ranks while it is in the tree, and the step
    that dropped it."""
    path: list[int] = []
    beam: int | None = 0
    dropped = None
    for number, ((id, _), step) in enumerate(zip(tree.greedy, tree.steps, strict=False)):
        rank = next((rank for rank, one in enumerate(step) if (one.origin, one.id) == (beam, id)), None)
        if rank is not None:
            path.append(rank)
        if rank is None or step[rank].fate == "dropped":
            dropped = number
            break
        beam = step[rank].beam
    ids, total = [id for id, _ in tree.greedy], sum(log_prob for _, log_prob in tree.greedy)
    text = generation.decode([id for id in ids if id not in request.ends])
    return {
        "text": text, "tokens": prepared.names(ids), "log_probabilities": [round(one, 5) for _, one in tree.greedy],
        "log_probability": round(total, 5), "score": round(total / len(ids) ** request.length_penalty, 5),
        "path": path, "dropped": dropped,
    }  # fmt: skip


def render_search(data: Mapping[str, Any]) -> str:
    """A line for each step, then the hypotheses, then greedy choice."""
    lines = [
        f"beam search, {data['beams']} beams; score = Σ log p / length^{data['length_penalty']:g}",
        "step  kept, with Σ log p (⏹ ended) | dropped",
    ]
    for number, step in enumerate(data["steps"], 1):
        cells = [
            f"{'⏹' if one['fate'] == 'ended' else ''}{readable([one['token']], 12)[0]} {one['total']:.2f}"
            for one in step if one["fate"] != "dropped"
        ]  # fmt: skip
        dropped = readable([one["token"] for one in step if one["fate"] == "dropped"], 12)
        lines.append(f"{number:4}  {'  '.join(cells)} | {' '.join(dropped)}".rstrip(" |"))
    lines += ["", "   score    Σ log p  hypothesis"]
    lines += [
        f"{one['score']:8.4f}  {one['log_probability']:9.4f}  {one['text']}" for one in data["hypotheses"]
    ]  # fmt: skip
    greedy = data["greedy"]
    lines.append(f"{greedy['score']:8.4f}  {greedy['log_probability']:9.4f}  {greedy['text']}  (greedy)")
    return "\n".join([*lines, verdict(data)])


def verdict(data: Mapping[str, Any]) -> str:
    """A sentence on greedy choice beside the search."""
    best: Sequence[Any] = data["hypotheses"]
    greedy = data["greedy"]
    if greedy["dropped"] is not None:
        gain = best[0]["score"] - greedy["score"]
        return f"The search dropped the greedy path at step {greedy['dropped'] + 1}; its best score is {gain:+.4f}."
    if best and best[0]["path"] == greedy["path"]:
        return "The best hypothesis is the greedy one."
    return "The greedy path stays in the search to its end, and another hypothesis has the better score."


register_view(
    View(name="beam", show=show_search, render=render_search, options=("beams",), needs_weights=False, complete=False)
)
