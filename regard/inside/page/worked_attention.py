"""A page with sliders for attention worked out by hand, as one file that needs no network."""

from regard.inside.draw.document import STYLES, whole_page
from regard.inside.explain.worked_attention import Example, find_query
from regard.nn.mask_expressions import read_mask
from regard.nn.masks import everything


def attention_page(example: Example, query: str | None = None, *, mask: str = "", temperature: float = 1.0) -> str:
    """Return the text of the page; it opens with this query, mask and temperature."""
    index, q = find_query(example, query)
    queries, names = example.queries, list(example.names)
    if index is None:  # a vector of the user's own joins the others
        assert q is not None
        queries, names, index = [*(queries or []), q], [*names, "own"], len(names)
    count = len(example.words)
    rule = read_mask(mask, count) if mask else everything()
    rows = [i if example.own and i < count else count - 1 for i in range(len(names))]
    data = {
        "title": example.title, "words": example.words, "features": example.features, "names": names,
        "queries": queries, "keys": example.keys, "values": example.values, "scores": example.scores,
        "index": index, "q": q, "temperature": temperature,
        "allowed": [rule.at(row).dense(1, count)[0, 0, 0].tolist() for row in rows],
    }  # fmt: skip
    return whole_page(data, "attend.js", (*STYLES[:2], "attend.css"))
