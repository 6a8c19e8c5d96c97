"""Files of `regard attend`: words with queries, keys and values, in JSON or TOML."""

import json

from fuzz.scratch import put
from regard.inside.explain.worked_attention import EXAMPLES, load_example, work_out

READS = ("regard.inside.explain.worked_attention",)


def seeds() -> list[bytes]:
    """Return the built-in examples as JSON, and one as TOML."""
    toml = b'words = ["the", "cat"]\nvectors = [[1, 0.5], [0, 2]]\ntitle = "two"\n'
    return [json.dumps(example).encode() for example in EXAMPLES.values()] + [toml]


def run(data: bytes) -> None:
    """Load an example and work it out for its first query and for a vector."""
    example = load_example(str(put("example.json" if data[:1] in (b"{", b"[") else "example.toml", data)))
    work_out(example, mask="causal" if len(data) % 2 else "")
    work_out(example, digits=2, temperature=0.5)
