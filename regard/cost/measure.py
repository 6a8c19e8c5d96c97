"""Computes the cost of a config: its model is built on `meta` and run once, and the counts of `walk.py` are summed up.

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
from regard.cost.walk import Walk, storage_key
from regard.nn.patches import sides
from regard.registry import models

LENGTH = 1024
"""Default number of tokens."""
STEPS = 64
"""Number of tokens for which a model that loops over them is run."""
AXES = {"ids": "B T", "source": "B S", "target": "B T", "lengths": "B", "pixels": "B C Y X"}
"""Axes of inputs that several families have, by name; axes of other inputs are read from their annotation."""
BLOCK = {"attention": "attention", "cross": "cross_attention", "feedforward": "feedforward", "norms": "norms"}
"""Names of a block's parts in the table, by its attribute names."""
CACHED = {"own": "self", "source": "cross", "keys": "source", "values": "source"}
"""Names of cached tensors in the table, by the attribute of the cache that holds them."""


def cost(
    config: Any, *, batch: int = 1, length: int | None = None, source_length: int | None = None,
    bytes_per_number: int = 4, training: bool = False,
) -> Cost:  # fmt: skip
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
    try:
        seen, shape = walk(model, setting)
        cache = count_cache(model, inputs, length)
    except (RuntimeError, NotImplementedError) as error:
        words = str(error).partition("\n")[0]
        raise ValueError(f"{type(model).__name__} does not run on the meta device: {words}") from None
    kept = Counter({"widest_layer": seen.peak}) if not training else Counter[str]()
    for path, numbers in seen.kept.items():
        kept[parts.module(path)] += numbers
    matrices: Counter[str] = Counter()
    for path, entries in seen.matrices.items():
        matrices[parts.attention(path, path in seen.crossing)] += entries
    held = [parts.attention(path, path in seen.crossing) for path in seen.matrices if path in seen.held]
    weights = parts.parameters()
    total, logits = sum(weights.values()), shape[-1] == getattr(config, "vocab_size", None)
    per_token, once, flops = flops_of(seen, inputs, setting, images="pixels" in inputs and hasattr(config, "tokens"))
    notes = (part.cost_note(training) for part in [*model.modules()] if hasattr(part, "cost_note"))  # type: ignore

    def sized(numbers: dict[str, int]) -> dict[str, int]:
        return {name: number * bytes_per_number for name, number in numbers.items() if number}

    return Cost(
        model=type(config).__name__.removesuffix("Config"),
        setting=setting,
        bytes_per_number=bytes_per_number,
        parameters=weights | {"total": total},
        flops_per_token=per_token,
        flops_per_sequence=once,
        flops=flops,
        memory=Memory(
            weights=total * bytes_per_number,
            gradients=total * bytes_per_number if training else 0,
            optimizer=2 * total * bytes_per_number if training else 0,
            activations=sized(kept),
            cache=sized(cache),
            attention_matrices=sized(matrices),
            scores=batch * length * config.vocab_size * bytes_per_number if logits else 0,
            matrices_held=tuple(dict.fromkeys(held)),
            training=training,
        ),
        notes=tuple(dict.fromkeys(filter(None, notes))),
    )


def parameters(config: Any) -> dict[str, int]:
    """The number of parameters of each part of a model with this config."""
    return Parts(build(config)).parameters()


def build(config: Any) -> Any:
    """The model of the family with this class of configs, or with the nearest that it extends, without memory."""
    families = {models[name].config_class: models[name] for name in models}
    for base in type(config).__mro__:
        if base in families:
            with torch.device("meta"):
                return families[base](config)
    known = ", ".join(sorted(config_class.__name__ for config_class in families))
    raise ValueError(f"no family has configs of class {type(config).__name__}; known: {known}; add it: register_model")


def inputs_of(model: nn.Module, setting: Setting) -> dict[str, Tensor]:
    """Return meta tensors for every argument of `forward` without a default."""
    config: Any = model.config
    axes = dict(B=setting.batch, M=setting.batch, T=setting.length, S=setting.source_length)
    if (image := getattr(config, "image", None)) is not None:
        axes |= dict(zip("YX", sides(image), strict=True), C=getattr(config, "channels", 3))
    axes |= getattr(model, "axes", dict)()
    inputs = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.default is parameter.empty:
            names = str(AXES.get(name) or getattr(parameter.annotation, "dim_str", "B T"))
            floating = name == "pixels" or "float32" in getattr(parameter.annotation, "dtypes", ())
            shape = [axes[axis] if axis in axes else int(axis) for axis in names.split()]
            inputs[name] = torch.empty(shape, device="meta", dtype=torch.float32 if floating else torch.int64)
    return inputs


def walk(model: nn.Module, setting: Setting) -> tuple[Walk, torch.Size]:
    """Run one pass, and return its counts and the shape of its first output. A model that loops over tokens is run on
    two short inputs, from which the counts are extrapolated: all are linear in the length."""
    loops = any(getattr(module, "stepwise", False) for module in model.modules())
    if not loops or setting.length <= STEPS:
        return single_pass(model, setting)
    (less, _), (more, shape) = (single_pass(model, replace(setting, length=steps)) for steps in (STEPS // 2, STEPS))
    for name in ("flops", "rows", "matrices", "kept"):
        first, second = getattr(less, name), getattr(more, name)
        for key in second:
            grown = (second[key] - first[key]) * (setting.length - STEPS)
            second[key] += grown // (STEPS - STEPS // 2)
    if not setting.training:  # which moment is the widest depends on the ratio of both lengths
        source = max(1, setting.source_length * STEPS // setting.length)
        small, _ = single_pass(model, replace(setting, length=STEPS, source_length=source))
        more.peak = small.peak * setting.length // STEPS
    return more, shape


def single_pass(model: Any, setting: Setting) -> tuple[Walk, torch.Size]:
    """Runs a model once, for training all of its heads."""
    inputs = inputs_of(model.train(setting.training), setting)
    seen = Walk(model, inputs)
    if features := getattr(model, "features", None):
        model.features = partial(  # type: ignore[assignment]
            seen.until_features, features
        )
    with torch.set_grad_enabled(setting.training), seen.watched():
        outputs = getattr(model, "outputs", model.forward)(**inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        shape = outputs[0].shape
        if setting.training:
            loss = torch.stack([output.sum() for output in outputs]).sum()
            del outputs
            seen.keep(loss)
    if features:
        del model.features
    return seen, shape


def flops_of(
    seen: Walk, inputs: dict[str, Tensor], setting: Setting, *, images: bool
) -> tuple[dict[str, Flops], int, Flops]:
    """Return FLOPs per token of each sequence, FLOPs that are independent of the length, and the total.

    A matrix that meets fewer vectors than a batch has tokens is used once a sequence; for an image, all work is divided
    by its tokens.
    """
    tokens = {name: setting.batch * setting.length for name in ("any", "target", "image")}
    tokens["source"] = setting.batch * setting.source_length
    work = dict.fromkeys(("source", "target", "any", "image", "once"), Flops())

    def token(path: str, attention: bool) -> str:
        if images or seen.uses[path] == {"pixels"}:
            return "image" if images else "once"
        name = "any" if "source" not in inputs else "target" if "target" in seen.uses[path] else "source"
        return name if attention or seen.rows[path] >= tokens[name] else "once"

    total = Flops()
    for (path, attention), flops in seen.flops.items():
        added = Flops(attention=flops) if attention else Flops(matrices=flops)
        total += added
        if seen.uses[path]:  # what comes from weights alone is computed once a batch
            work[token(path, attention)] += added
    once = work.pop("once").forward // setting.batch
    per_token = {
        name: Flops(matrices=flops.matrices // tokens[name], attention=flops.attention // tokens[name])
        for name, flops in work.items()
        if flops.forward
    }
    return per_token, once, total


def count_cache(model: Any, inputs: dict[str, Tensor], length: int) -> dict[str, int]:
    """Count the values that a generative model caches between decoding steps, with room for `length` tokens."""
    if not hasattr(model, "new_cache"):
        return {}
    context, cache = dict(inputs), model.new_cache(length)
    prefix = next(context.pop(name) for name in ("target", "ids") if name in inputs)[:, :1]
    with torch.no_grad(), torch.device("meta"), TorchFunctions():
        model.eval().prefill(prefix, cache, **context)
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = [(CACHED.get(name, name), value) for name, value in vars(cache).items() if name != "mask"]
    for name, value in waiting:
        if isinstance(value, Tensor) and storage_key(value) not in seen:
            seen.add(storage_key(value))
            sizes[name] += value.numel()
        elif isinstance(value, list | tuple):
            waiting += [(name, item) for item in value]
        elif hasattr(value, "__dict__") and not isinstance(value, Tensor):
            waiting += [(name, item) for item in vars(value).values()]
    return sizes


class Parts:
    """Names the parts of a model for the table: those of its blocks, by stack, and the model's other modules."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        paths = [name for name, _ in model.named_parameters()]
        self.stacks = {self.stack(path) for path in paths} - {None}
        self.crossed = {self.stack(path) for path in paths if "cross" in path.split(".")}

    def stack(self, path: str) -> str | None:
        """Return the stack that the module at a path belongs to."""
        names = path.split(".")
        if not any(name.isdigit() and part in BLOCK for name, part in zip(names, names[1:], strict=False)):
            return None
        return ".".join(names[: names.index(next(filter(str.isdigit, names))) - 1])

    def module(self, path: str) -> str:
        """Return the model's direct child that a path leads into, or the `part` name of a module on the path."""
        module: Any = self.model
        names = path.split(".")
        for name in names:
            module = getattr(module, name, None) if path else None
            if not isinstance(module, nn.Module):
                break
            if name.endswith("embedding") or hasattr(module, "part"):
                return getattr(module, "part", "embeddings")
        inner = len(names) > 1 and hasattr(getattr(self.model, names[0]), "embedding")  # a model inside the model
        return names[inner] or "other"

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
        if self.module(path) == "embeddings" and ("norm" in names or names[-1] == "types"):
            return "embedding_norms" if "norm" in names else "types"
        return self.module(path)

    def parameters(self) -> dict[str, int]:
        """Return the number of parameters by part; shared ones belong to the first."""
        sizes: Counter[str] = Counter()
        seen: set[int] = set()
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            sizes[self.parameter(name)] += 0 if id(parameter) in seen else parameter.numel()
            seen.add(id(parameter))
        return dict(sorted(sizes.items(), key=lambda item: item[0] not in ("embeddings", "positions")))

    def attention(self, path: str, crosses: bool) -> str:
        """Return the kind of attention of a layer: self or cross, after the stack's name where kinds are several."""
        stack, crosses = self.stack(path) or "", crosses or "cross" in path.split(".")
        if not crosses and not self.crossed and len(self.stacks) <= 1:
            return "self"
        name = stack.split(".")[0 if len(self.stacks) > 1 else -1] or "decoder"
        return name if not crosses and stack not in self.crossed else f"{name}_{'cross' if crosses else 'self'}"
