"""The figures of a config: its model is built on `meta`, runs once, and what `walk.py` saw is put into a table.

Nothing here knows a family. What `forward` takes is read off its signature; parts are named after the model's modules.
"""

import inspect
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.cost.figures import Cost, Flops, Memory, Setting
from regard.cost.substitutes import TorchFunctions
from regard.cost.walk import Product, Walk
from regard.nn.patches import sides
from regard.registry import models

AXES = {"ids": "B T", "source": "B S", "target": "B T", "lengths": "B", "pixels": "B C Y X"}
"""Axes of the inputs that families share; of others the annotation says them."""
BLOCK = {
    "attention": "attention",
    "cross": "cross_attention",
    "feedforward": "feedforward",
    "norms": "norms",
    "norm": "norms",
}
"""Parts of a block, by the names of its modules."""
STEPS = 64
"""Tokens that a loop over them is followed for."""
LENGTH = 1024
"""Tokens, unless another number is asked for."""
CACHED = {"own": "self", "source": "cross", "keys": "source", "values": "source"}
"""Names of what is cached, by the attribute of the cache that holds it."""


def family_of(config: Any) -> Any:
    """The class of models with this class of configs, or with the nearest class that it extends."""
    known = {models[name].config_class: models[name] for name in models}
    for base in type(config).__mro__:
        if base in known:
            return known[base]
    names = ", ".join(sorted(one.__name__ for one in known))
    raise ValueError(f"no family has configs of class {type(config).__name__}; known: {names}; add with register_model")


def build(config: Any) -> nn.Module:
    """The model, without memory for its parameters."""
    with torch.device("meta"):
        return family_of(config)(config)


def inputs_of(model: nn.Module, sizes: Setting) -> dict[str, Tensor]:
    """Tensors without numbers for every argument of `forward` that has no default."""
    config: Any = model.config
    letters = dict(B=sizes.batch, M=sizes.batch, T=sizes.length, S=sizes.source_length)
    if (image := getattr(config, "image", None)) is not None:
        letters |= dict(zip("YX", sides(image), strict=True), C=config.channels)
    letters |= getattr(model, "axes", dict)()
    found = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.default is not parameter.empty:
            continue
        shape = AXES.get(name) or getattr(parameter.annotation, "dim_str", "B T")
        floating = name == "pixels" or "float32" in getattr(parameter.annotation, "dtypes", ())
        axes = [letters[axis] if axis in letters else int(axis) for axis in shape.split()]
        found[name] = torch.empty(axes, device="meta", dtype=torch.float32 if floating else torch.int64)
    return found


def walk(model: nn.Module, setting: Setting) -> Walk:
    """One pass with everything that was seen of it.

    Of a model that loops over tokens two short passes tell how each figure grows: all are linear in the length.
    """
    steps, by_steps = setting.length, any(getattr(module, "stepwise", False) for module in model.modules())
    if not by_steps or steps <= STEPS:
        return single_pass(model, inputs_of(model, setting), training=setting.training)
    less, more = (
        single_pass(model, inputs_of(model, replace(setting, length=n)), training=setting.training)
        for n in (STEPS // 2, STEPS)
    )
    for name in ("flops", "rows", "matrices", "kept"):
        first, second = getattr(less, name), getattr(more, name)
        for key in second:
            second[key] = first[key] + (second[key] - first[key]) * (steps - STEPS // 2) // (STEPS - STEPS // 2)
    if not setting.training:  # the widest moment depends on how long both sequences are: a small model of them
        small = replace(setting, length=STEPS, source_length=max(1, setting.source_length * STEPS // steps))
        more.peak = single_pass(model, inputs_of(model, small), training=False).peak * steps / STEPS
    return more


def single_pass(model: nn.Module, inputs: dict[str, Tensor], *, training: bool) -> Walk:
    """Runs a model once; the widest moment is that of `features`, as no more than a few rows of logits are needed."""
    model.train(training)
    seen = Walk(model, inputs)
    if (features := getattr(model, "features", None)) is not None:
        model.features = partial(seen.until_features, features)  # type: ignore[assignment]
    with torch.set_grad_enabled(training), seen.watched():
        outputs = getattr(model, "outputs", model.forward)(**inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        seen.shape = outputs[0].shape
        if training:
            loss = torch.stack([output.sum() for output in outputs]).sum()
            del outputs
            seen.keep(loss)
            seen.compute_again(loss)
    if features is not None:
        del model.features
    return seen


class Parts:
    """Names for the parts of a model: of its stacks' blocks what all of them have, otherwise its own modules."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        paths = [name for name, _ in model.named_parameters()]
        self.stacks = {self.stack(path) for path in paths} - {None}
        self.crossed = {self.stack(path) for path in paths if "cross" in path.split(".")}

    def stack(self, path: str) -> str | None:
        """The stack whose block a path leads into: what stands before its list of blocks."""
        names = path.split(".")
        inside = [n for n, name in enumerate(names[:-1]) if name.isdigit() and names[n + 1] in BLOCK]
        return ".".join(names[: names.index(next(filter(str.isdigit, names))) - 1]) if inside else None

    def top(self, path: str) -> str:
        """The model's own module that a path leads into."""
        names = path.split(".")
        if not path:
            return "other"
        module = getattr(self.model, names[0])
        if names[0].endswith("embedding"):
            return "embeddings"
        return getattr(module, "part", None) or names[0]

    def prefix(self, stack: str) -> str:
        return f"{stack.split('.')[0]}_" if len(self.stacks) > 1 else ""

    def of_parameter(self, path: str) -> str:
        names, stack = path.split("."), self.stack(path)
        if "position" in names:
            return "positions"
        if stack is not None:
            part = BLOCK[next(name for name in names if name in BLOCK)]
            return self.prefix(stack) + ("self_" if part == "attention" and stack in self.crossed else "") + part
        if "norm" in names[:-1] and (names[0] == "norm" or ".".join(names[:-2]) in self.stacks):
            return (self.prefix(names[0]) if names[0] != "norm" else "") + "norms"
        if self.top(path) == "embeddings" and names[1] != "weight":
            return "types" if names[1] == "types" else "embedding_norms"
        return self.top(path)

    def of_kernel(self, path: str, crosses: bool) -> str:
        """A kind of attention: self or cross, and the stack where there are several."""
        stack = self.stack(path) or ""
        if len(self.stacks) <= 1 and not self.crossed and not crosses:
            return "self"
        name = stack.split(".")[-1 if len(self.stacks) <= 1 else 0] or "decoder"
        if not crosses and "cross" not in path.split(".") and stack not in self.crossed:
            return name
        return f"{name}_{'cross' if crosses or 'cross' in path.split('.') else 'self'}"


def count_parameters(model: nn.Module, parts: Parts) -> dict[str, int]:
    """By part; what two modules share belongs to the first."""
    found: Counter[str] = Counter({"embeddings": 0, "positions": 0})
    seen: set[int] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found[parts.of_parameter(name)] += 0 if id(parameter) in seen else parameter.numel()
        seen.add(id(parameter))
    return dict(found)


def parameters(config: Any) -> dict[str, int]:
    """The number of parameters of each part of a model, without a pass."""
    model = build(config)
    return count_parameters(model, Parts(model))


def count_cache(model: nn.Module, inputs: dict[str, Tensor], length: int) -> dict[str, int]:
    """Numbers that a generative model keeps between the steps of decoding, with room for `length` tokens."""
    if (new_cache := getattr(model, "new_cache", None)) is None:
        return {}
    rest = {name: tensor for name, tensor in inputs.items() if name not in ("ids", "target")}
    prefix = next(tensor for name, tensor in inputs.items() if name in ("ids", "target"))[:, :1]
    cache = new_cache(length)
    with torch.no_grad(), torch.device("meta"), TorchFunctions():
        model.eval().prefill(prefix, cache, **rest)
    found: Counter[str] = Counter()
    seen: set[int] = set()

    def add(name: str, value: Any) -> None:
        if isinstance(value, Tensor) and value.is_floating_point() and Walk.key(value) not in seen:
            seen.add(Walk.key(value))
            found[name] += value.numel()
        elif isinstance(value, list | tuple):
            for one in value:
                add(name, one)
        elif hasattr(value, "__dict__") and name != "mask":
            for one in vars(value).values():
                add(name, one)

    for name, value in vars(cache).items():
        add(CACHED.get(name, name), value)
    return dict(found)


def cost(
    config: Any,
    *,
    batch: int = 1,
    length: int | None = None,
    source_length: int | None = None,
    bytes_per_number: int = 4,
    training: bool = False,
) -> Cost:
    """The cost of a model with this config, from one pass on `meta`, which takes no memory.

    `length` is 1024, or the longest that the model is planned for if that is less; `source_length` is as long. Of an
    image the config itself says how many tokens there are.
    """
    length = getattr(config, "tokens", length)
    length = min(LENGTH, getattr(config, "max_len", LENGTH)) if length is None else length
    source_length = length if source_length is None else source_length
    sizes = dict(batch=batch, length=length, source_length=source_length, bytes_per_number=bytes_per_number)
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    setting = Setting(batch=batch, length=length, source_length=source_length, training=training)
    model = build(config)
    parts, inputs = Parts(model), inputs_of(model, setting)
    seen = walk(model, setting)
    activations = activations_of(parts, seen) if training else {"widest_layer": round(seen.peak)}
    weights = count_parameters(model, parts)
    total = sum(weights.values())
    per_token, per_sequence, flops = flops_of(
        seen, inputs, setting, images="pixels" in inputs and hasattr(config, "tokens")
    )

    def sized(numbers: dict[str, int]) -> dict[str, int]:
        return {name: number * bytes_per_number for name, number in numbers.items()}

    matrices: Counter[str] = Counter()
    for call, entries in seen.matrices.items():
        matrices[parts.of_kernel(*call)] += entries
    held = tuple(dict.fromkeys(parts.of_kernel(*call) for call in seen.matrices if call in seen.held))
    scores = batch * length * config.vocab_size if seen.shape[-1] == getattr(config, "vocab_size", None) else 0
    notes = [module.cost_note(training) for module in model.modules() if hasattr(module, "cost_note")]
    return Cost(
        model=type(config).__name__.removesuffix("Config"),
        setting=setting,
        bytes_per_number=bytes_per_number,
        parameters=weights | {"total": total},
        flops_per_token=per_token,
        flops_per_sequence=per_sequence,
        flops=flops,
        memory=Memory(
            weights=total * bytes_per_number,
            gradients=total * bytes_per_number if training else 0,
            optimizer=2 * total * bytes_per_number if training else 0,
            activations=sized(activations),
            cache=sized(count_cache(model, inputs, length)),
            attention_matrices=sized(dict(matrices)),
            scores=scores * bytes_per_number,
            matrices_held=held,
            training=training,
        ),
        notes=tuple(dict.fromkeys(filter(None, notes))),
    )


def activations_of(parts: Parts, seen: Walk) -> dict[str, int]:
    """Numbers kept for the backward pass by each of the model's own modules, or while a part is computed again."""
    found: Counter[str] = Counter()
    for path, numbers in (*seen.kept.items(), *seen.again.items()):
        found[parts.top(path)] += numbers
    return {name: round(numbers) for name, numbers in found.items() if numbers}


def flops_of(
    seen: Walk, inputs: dict[str, Tensor], setting: Setting, *, images: bool
) -> tuple[dict[str, Flops], int, Flops]:
    """FLOPs of a token of each sequence, of what is computed once a sequence, and of everything.

    A matrix that meets fewer vectors than a batch has tokens is used once a sequence.
    """
    lengths = {"source": setting.source_length, "target": setting.length, "any": setting.length}
    found: dict[str, Flops] = {}
    total = Flops()

    def token(product: Product) -> str:
        if images or product.inputs == {"pixels"}:
            return ""
        if "source" not in inputs:
            return "any"
        return "target" if "target" in product.inputs else "source"

    for product, flops in seen.flops.items():
        work = Flops(attention=flops) if product.attention else Flops(matrices=flops)
        total += work
        if not product.inputs:
            continue
        name = token(product)
        if name and not product.attention and seen.rows[product] < setting.batch * lengths[name]:
            name = ""
        found[name] = found.get(name, Flops()) + work
    once = found.pop("", Flops())
    per_token = {
        name: Flops(
            matrices=found[name].matrices // (setting.batch * lengths[name]),
            attention=found[name].attention // (setting.batch * lengths[name]),
        )
        for name in lengths
        if name in found
    }
    return per_token, once.forward // setting.batch, total
