"""Names for the parts of a model: of its stacks what all blocks have, otherwise its own modules."""

from collections import Counter

from torch import nn

from regard.cost.walk import Call

BLOCK = {"attention": "attention", "cross": "cross_attention", "feedforward": "feedforward", "norms": "norms"}
"""Parts of a block, by the names of its modules."""


class Parts:
    """The parts of one model. Those of several stacks have the stack's name in front."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        paths = [name for name, _ in model.named_parameters()]
        self.stacks = {self.stack(path) for path in paths} - {None}
        self.crossed = {self.stack(path) for path in paths if "cross" in path.split(".")}

    def stack(self, path: str) -> str | None:
        """The module whose list of blocks a path leads into."""
        names = path.split(".")
        if not any(name.isdigit() and part in BLOCK for name, part in zip(names, names[1:], strict=False)):
            return None
        return ".".join(names[: names.index(next(filter(str.isdigit, names))) - 1])

    def module(self, path: str) -> str:
        """The model's own module that a path leads into."""
        name = path.partition(".")[0]
        if name.endswith("embedding"):
            return "embeddings"
        return getattr(getattr(self.model, name), "part", name) if name else "other"

    def parameter(self, path: str) -> str:
        names, stack = path.split("."), self.stack(path)
        prefix = f"{names[0]}_" if len(self.stacks) > 1 else ""
        if "position" in names:
            return "positions"
        if stack is not None:
            part = BLOCK[next(name for name in names if name in BLOCK)]
            return prefix + ("self_" if part == "attention" and stack in self.crossed else "") + part
        if names[0] == "norm" or (names[-2:-1] == ["norm"] and ".".join(names[:-2]) in self.stacks):
            return "norms" if names[0] == "norm" else prefix + "norms"
        if self.module(path) == "embeddings" and names[1] != "weight":
            return "types" if names[1] == "types" else "embedding_norms"
        return self.module(path)

    def parameters(self) -> dict[str, int]:
        """Their numbers, by part; what two modules share belongs to the first."""
        found: Counter[str] = Counter({"embeddings": 0, "positions": 0})
        seen: set[int] = set()
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            found[self.parameter(name)] += 0 if id(parameter) in seen else parameter.numel()
            seen.add(id(parameter))
        return dict(found)

    def attention(self, call: Call) -> str:
        """A kind of attention: self or cross, and the stack's name where there are several kinds."""
        stack = self.stack(call.path) or ""
        crosses = call.crosses or "cross" in call.path.split(".")
        if not crosses and not self.crossed and len(self.stacks) <= 1:
            return "self"
        name = stack.split(".")[0 if len(self.stacks) > 1 else -1] or "decoder"
        return name if not crosses and stack not in self.crossed else f"{name}_{'cross' if crosses else 'self'}"
