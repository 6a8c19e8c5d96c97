"""A kernel examined: every law that it claims, whether it collapses, and how its time grows. For users' own, too."""

import importlib.util
import platform
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from regard.doctor import kernel_claims, kernel_laws
from regard.doctor.kernel_laws import Build
from regard.native import compiled
from regard.nn.kernels import Full, Kernel
from regard.nn.masks import causal

EXTRAS = {
    "text": ("emoji", "seqeval", "sklearn", "rouge_score"), "vision": ("PIL", "scipy", "sklearn"),
    "hub": ("huggingface_hub",),
}  # fmt: skip


def examine_machine() -> dict[str, str]:
    """What there is, and what is missed with its cure."""
    found = {"python": platform.python_version(), "torch": f"{torch.__version__}, {torch.get_num_threads()} threads"}
    found["kernels"] = "compiled" if compiled.available() else compiled.why_not()
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        found[extra] = f"no {', '.join(missing)}: pip install 'regard[{extra}]'" if missing else "installed"
    return found


Verdict = Literal["ok", "broken", "not claimed", "slow"]


@dataclass(frozen=True, slots=True)
class Law:
    """One law, the declarations that it belongs to, and what it means if it is broken."""

    name: str
    check: Callable[[Build], Any]
    needs: tuple[str, ...]
    meaning: str

    def missing(self, kernel: Kernel) -> str | None:
        """What the kernel would have to declare for this law to speak of it; `!` in front: must not."""
        for need in self.needs:
            word, wanted = need.removeprefix("!"), not need.startswith("!")
            if getattr(kernel, word) is not wanted:
                return f"{word} = {not wanted}"
        return None


LAWS = [
    Law("hides the future: outputs", kernel_laws.hides_the_future, ("causal",),
        "it leaks: a model would copy the answer"),
    Law("hides the future: gradients", kernel_laws.future_has_no_gradient, ("causal",),
        "it leaks: it learns from what it must predict"),
    Law("honours masks, refuses others", kernel_laws.honours_masks, (),
        "positions that are hidden have an influence"),
    Law("padding changes nothing", kernel_laws.padding_changes_nothing, (),
        "answers depend on what fills up a batch"),
    Law("batch equals single", kernel_laws.batch_equals_single, (),
        "answers depend on the other rows of a batch"),
    Law("cached equals uncached", kernel_laws.cached_equals_uncached, ("causal", "cached"),
        "it generates other text than it was trained on"),
    Law("weights explain the output", kernel_claims.weights_explain_the_output, ("weighs",),
        "what `regard look` shows is not what it did"),
    Law("equals plain attention", kernel_claims.equals_plain_attention, ("exact", "reference"),
        "declare exact = False and a tolerance, or reference = False if it is another formula"),
    Law("stays within its tolerance", kernel_claims.stays_within_its_tolerance, ("!exact", "reference"),
        "state a larger tolerance or approximate better"),
    Law("grouped heads equal repeated", kernel_claims.grouped_heads_equal_repeated, ("!shares",),
        "kv_heads gives wrong answers"),
    Law("looks from one sequence at another", kernel_claims.looks_across, ("crosses", "!shares"),
        "cross-attention fails: declare crosses = False"),
    Law("nothing to see gives zeros", kernel_claims.nothing_to_see_gives_zeros, (),
        "a row of padding spoils training"),
    Law("takes a bias", kernel_claims.takes_a_bias, ("biased",),
        "positions as a bias are lost: declare biased = False"),
    Law("drops weights", kernel_claims.drops_weights, ("drops",),
        "attention_dropout does something else: declare drops = False"),
    Law("every parameter learns", kernel_claims.every_parameter_learns, (),
        "a part of it does nothing"),
    Law("finite in float32 and bfloat16", kernel_claims.stays_finite, (),
        "training would end in NaN"),
    Law("does not collapse", kernel_claims.does_not_collapse, (),
        "it collapses: every token hears the same"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one law: `found` is the measured number, or what is broken and what that means."""

    law: str
    verdict: Verdict
    found: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings on one kernel."""

    kernel: str
    findings: list[Finding]

    @property
    def broken(self) -> int:
        return sum(finding.verdict == "broken" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "broken": self.broken, "laws": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        rows = [f"  {each.verdict:<12} {each.law}{': ' if each.found else ''}{each.found}" for each in self.findings]
        verdicts = [each.verdict for each in self.findings]
        total = ", ".join(f"{verdicts.count(v)} {v}" for v in ("ok", "broken", "slow", "not claimed") if v in verdicts)
        return "\n".join([self.kernel, *rows, f"  {total}"])


def examine(build: Build, name: str, *, speed: bool = True, seed: int = 0) -> Diagnosis:
    """Runs every law on the kernel that `build(heads=…, head_dim=…, max_len=…)` makes.

    One that cannot be built, or that fails on the simplest question, is a ValueError: nothing else can be asked.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kernel = first_answer(build, name)
        findings = [Finding("answers", "ok", "(output, None) in the right shape")]
        for law in LAWS:
            torch.manual_seed(seed)
            findings.append(ask(law, kernel, build))
        if speed:
            findings.append(time_it(build, kernel))
    return Diagnosis(name, findings)


def first_answer(build: Build, name: str) -> Kernel:
    """The kernel, if it can be built and says anything at all."""
    try:
        kernel = kernel_laws.made(build)
    except Exception as error:
        cure = "it is called with heads, head_dim and max_len"
        raise ValueError(f"{name} cannot be built: {told(error)}; {cure}") from None
    try:
        kernel_claims.answers(build)
    except AssertionError as error:
        raise ValueError(f"{name} answers, but wrongly: {error}") from None
    except Exception as error:
        raise ValueError(f"{name} fails in forward: {told(error)}") from None
    return kernel


def ask(law: Law, kernel: Kernel, build: Build) -> Finding:
    """One law on one kernel."""
    missing = law.missing(kernel)
    if missing:
        return Finding(law.name, "not claimed", missing)
    try:
        return Finding(law.name, "ok", law.check(build) or "")
    except AssertionError as error:
        return Finding(law.name, "broken", f"{error} → {law.meaning}")
    except Exception as error:  # whatever a user's kernel does
        return Finding(law.name, "broken", f"it raised {told(error)} → {law.meaning}")


def told(error: Exception) -> str:
    """An error in one line, with the last place in it that is the user's: neither ours nor in a library."""
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    frames = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}{where}"


# ---- time -----------------------------------------------------------------------------------------------------

SIZES = (1024, 4096)
ROOM = 10.0
"""Seconds that one pass over the longer sequence may be expected to take."""


@torch.no_grad()
def time_it(build: Build, kernel: Kernel) -> Finding:
    """Seconds at 1k and 4k positions beside `full`, and the exponent by which they grow."""
    try:
        ours, theirs = seconds(build, kernel), seconds(Full, kernel)
    except Exception as error:
        return Finding("speed", "broken", f"it raised {told(error)}")
    times = zip(SIZES, ours, theirs, strict=False)
    shown = ", ".join(f"{n} positions {1000 * a:.0f} ms (full {1000 * b:.0f})" for n, a, b in times)
    if len(ours) < len(SIZES):
        return Finding("speed", "slow", f"{shown}; {SIZES[-1]} were not tried")
    growth = [exponent(found) for found in (ours, theirs)]
    verdict: Verdict = "ok" if ours[-1] <= 1.5 * theirs[-1] else "slow"
    return Finding("speed", verdict, f"{shown}; time grows as n^{growth[0]:.1f} (full n^{growth[1]:.1f})")


def exponent(times: list[float]) -> float:
    return float(torch.tensor(times[-1] / times[0]).log() / torch.tensor(SIZES[-1] / SIZES[0]).log())


def seconds(build: Callable[..., Kernel], like: Kernel) -> list[float]:
    """The fastest of a few forward passes at each length; the longer one only if it can be afforded."""
    kernel = build(heads=2, head_dim=32, max_len=max(SIZES)).eval()
    mask = causal() if like.causal else None
    found: list[float] = []
    for n in SIZES:
        if found and found[0] * (n / SIZES[0]) ** 2 > ROOM:  # also keeps out what would fill the memory
            break
        q, k, v = (torch.randn(1, 2, n, 32) for _ in "qkv")
        k = q if like.shares else k
        kernel(q, k, v, mask=mask)
        found.append(min(timed(lambda: kernel(q, k, v, mask=mask)) for _ in range(3)))  # noqa: B023
    return found


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
