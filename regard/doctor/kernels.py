"""A kernel examined: every law that it claims, whether it collapses, and how its time grows. For users' own, too."""

import math
import timeit

import torch

from regard.doctor import kernel_claims, kernel_laws
from regard.doctor.kernel_laws import Build
from regard.doctor.verdicts import Law, Outcome, Report, Verdict, in_one_line, run
from regard.nn.kernels import Full, Kernel
from regard.nn.masks import causal

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
    Law("attends from one sequence to another", kernel_claims.cross_attends, ("crosses", "!shares"),
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
        "it collapses: every token gets the same output"),
]  # fmt: skip


def examine(build: Build, name: str, *, speed: bool = True) -> Report:
    """Runs every law on the kernel that `build(heads=…, head_dim=…, max_len=…)` makes.

    One that cannot be built, or that fails on the simplest input, is a ValueError: nothing else can be examined.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kernel = first_answer(build, name)
        outcomes = [Outcome("answers", "ok", "(output, None) in the right shape"), *run(LAWS, build, missing)]
        if speed:
            outcomes.append(time_it(build, kernel))
    return Report("kernel", name, outcomes)


def missing(law: Law, build: Build) -> str | None:
    """The declaration that keeps a law from applying to a kernel; `!` before a need: it must be False."""
    with torch.random.fork_rng(devices=[]):
        kernel = kernel_laws.made(build)
    for need in law.needs:
        name, wanted = need.removeprefix("!"), not need.startswith("!")
        if getattr(kernel, name) is not wanted:
            return f"{name} = {not wanted}"
    return None


def first_answer(build: Build, name: str) -> Kernel:
    """The kernel, if it can be built and answers a small example in the right form."""
    try:
        kernel = kernel_laws.made(build)
    except Exception as error:
        cure = "it is called with heads, head_dim and max_len"
        raise ValueError(f"{name} cannot be built: {in_one_line(error)}; {cure}") from None
    try:
        kernel_claims.answers(build)
    except AssertionError as error:
        raise ValueError(f"{name} returns a wrong output: {error}") from None
    except Exception as error:
        raise ValueError(f"{name} fails in forward: {in_one_line(error)}") from None
    return kernel


# ---- time -----------------------------------------------------------------------------------------------------

SIZES = (1024, 4096)
"""Sequence lengths that are timed."""
MAX_SECONDS = 10.0
"""The longer sequence is left out if one pass is expected to take more."""


@torch.no_grad()
def time_it(build: Build, kernel: Kernel) -> Outcome:
    """Seconds at both lengths beside those of `full`, and the exponent by which they grow."""
    try:
        ours, theirs = seconds(build, kernel), seconds(Full, kernel)
    except Exception as error:
        return Outcome("speed", "broken", f"it raised {in_one_line(error)}")
    times = zip(SIZES, ours, theirs, strict=False)
    shown = ", ".join(f"{n} positions {1000 * a:.0f} ms (full {1000 * b:.0f})" for n, a, b in times)
    if len(ours) < len(SIZES):
        return Outcome("speed", "slow", f"{shown}; {SIZES[-1]} were not tried")
    verdict: Verdict = "ok" if ours[-1] <= 1.5 * theirs[-1] else "slow"
    growth = f"n^{exponent(ours):.1f} (full n^{exponent(theirs):.1f})"
    return Outcome("speed", verdict, f"{shown}; time grows as {growth}")


def exponent(times: list[float]) -> float:
    """The exponent p of time ∝ n^p between the first and the last length."""
    return math.log(times[-1] / times[0]) / math.log(SIZES[-1] / SIZES[0])


def seconds(build: Build, like: Kernel) -> list[float]:
    """The fastest of three forward passes at each length, with inputs as the kernel `like` takes them."""
    kernel = build(heads=2, head_dim=32, max_len=max(SIZES)).eval()
    mask = causal() if like.causal else None
    times: list[float] = []
    for n in SIZES:
        if times and times[0] * (n / SIZES[0]) ** 2 > MAX_SECONDS:  # also avoids filling the memory
            break
        q, k, v = (torch.randn(1, 2, n, 32) for _ in "qkv")
        k = q if like.shares else k
        kernel(q, k, v, mask=mask)
        times.append(min(timeit.repeat(lambda: kernel(q, k, v, mask=mask), number=1, repeat=3)))  # noqa: B023
    return times
