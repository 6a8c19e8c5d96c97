"""Decoding beside CTranslate2, ONNX Runtime, llama.cpp and Hugging Face, in one interleaved run.

    pip install ctranslate2 onnx onnxruntime gguf llama-cpp-python 'transformers>=5'
    python benchmarks/decode.py [--workloads gpt,base,tiny,start] [--rounds 5] [--only ours,ctranslate2-int8] [--json]

All engines get the same random weights and the same ids, and must write as many tokens. gpt: the shape of GPT-2 small,
32 tokens read and 128 written, greedy, 1, 8 and 16 rows; the speed is without the first token, which has a column of
its own. base, tiny: translation, 64 sources of 20 tokens, 20 tokens written, greedy and with 4 beams. start: a fresh
process until the first token of a small model. Every engine has its own process and takes its turn in every round
while the others sleep, so a noisy machine disturbs all alike; what counts is the ratio, round by round. How fast the
memory is read is measured in the same rounds: at one row, no engine can be faster than that allows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from decode_peers import EOS, PEERS, WEIGHTS, Child, Contestant, Failed, is_decoder, once, read_config

PAUSE = 0.25
"""Seconds between turns: the threads of the last one go on spinning for a while."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The work of an engine in its turn."""

    name: str
    rows: int
    read: int
    """Tokens of each prompt or source."""
    new: int
    beams: int = 1

    def inputs(self, vocab: int, *seed: int) -> list[list[int]]:
        """Random ids without the special ones: end, unknown, and the padding, which is the last."""
        return np.random.default_rng(seed).integers(2, vocab - 1, size=(self.rows, self.read)).tolist()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A model, and what is done with it."""

    family: str
    preset: str
    vocab: int
    cases: tuple[Case, ...]


GPT = tuple(Case(name=f"{rows} at once", rows=rows, read=32, new=128) for rows in (1, 8, 16))
TRANSLATION = tuple(
    Case(name="greedy" if beams == 1 else f"beam {beams}", rows=64, read=20, new=20, beams=beams) for beams in (1, 4)
)
WORKLOADS = {
    "gpt": Workload(family="gpt", preset="gpt2", vocab=50_257, cases=GPT),
    "base": Workload(family="transformer", preset="base", vocab=10_000, cases=TRANSLATION),
    "tiny": Workload(family="transformer", preset="tiny", vocab=10_000, cases=TRANSLATION),
    "start": Workload(family="gpt", preset="tiny", vocab=10_000, cases=()),
}
MARIAN = dict(position="sinusoidal-halves", norm_place="post")
"""The 2017 Transformer as Marian has it, which the others can read."""


class Maker(Contestant):
    """Writes random weights in the Hugging Face layout."""

    def make(self, workload: Workload, home: Path) -> None:
        import torch

        from regard.hub import export_model
        from regard.models import build, preset

        torch.manual_seed(0)
        decoder = workload.family == "gpt"
        changes: dict[str, Any] = dict(vocab_size=workload.vocab, **({"position": "learned"} if decoder else MARIAN))
        model = build(workload.family, preset(workload.family, workload.preset, **changes)).eval()
        pad = None if decoder else workload.vocab - 1
        if pad is not None:
            with torch.no_grad():  # CTranslate2 starts a Marian decoder with zeros
                model.target_embedding.weight[pad] = 0
        export_model(model, home / WEIGHTS, bos=EOS if pad is None else pad, eos=EOS, pad=pad, force_end=False)


class Ours(Contestant):
    """This package's engine, with its defaults."""

    def prepare(self, home: Path, threads: int) -> None:
        import torch

        from regard.decode.engine import Engine
        from regard.hub import load_model
        from regard.native.quantized import quantize

        torch.set_num_threads(threads)
        model = load_model(home / WEIGHTS)
        self.engine = Engine(model if self.precision == "float32" else quantize(model, self.precision), threads=threads)
        self.decoder, self.pad = is_decoder(home), read_config(home)["vocab_size"] - 1

    def write(self, rows: list[list[int]], new: int, beams: int) -> list[list[int]]:
        import torch

        from regard.decode.requests import Request

        if self.decoder:
            requests = [Request(prompt=row, max_len=new) for row in rows]
        else:
            how: dict[str, Any] = dict(prompt=[self.pad], max_len=new, ends=(EOS,), forbidden=(EOS, self.pad))
            requests = [Request(inputs={"source": torch.tensor(row)}, beams=beams, **how) for row in rows]
        return [ticket.result()[0].ids for ticket in self.engine.serve(requests)]


class Memory(Contestant):
    """The speed at which all threads together read memory: a gigabyte, far more than any cache holds."""

    def prepare(self, home: Path, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.matrix, self.vector = torch.ones(2**16, 2**12), torch.ones(2**12)

    def read(self) -> float:
        """Bytes a second, of a sum or of a matrix times a vector, whichever is faster."""
        fastest = 0.0
        for work in (self.matrix.sum, lambda: self.matrix @ self.vector) * 2:
            started = time.perf_counter()
            work()
            fastest = max(fastest, self.matrix.nbytes / (time.perf_counter() - started))
        return fastest


OURS = [Ours(f"ours-{precision}", precision) for precision in ("float32", "int8", "int4")]
WEIGHT_BYTES = {"float32": 4.0, "int8": 1.0, "int4": 0.625}
"""Of one weight in a block's matrix; int4 has a float32 scale for 32 of them. Scales of rows are too few to count."""

STARTS = {
    "ours": """
from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.hub import load_model
Engine(load_model(home / "hf")).serve([Request(prompt=prompt, max_len=1)])
""",
    "ctranslate2-float32": """
import ctranslate2
engine = ctranslate2.Generator(str(home / "ctranslate2-float32"))  # threads from OMP_NUM_THREADS
engine.generate_batch([[f"w{id}" for id in prompt]], max_length=1, include_prompt_in_result=False)
""",
    "huggingface-float32": """
import torch
from transformers import GPT2LMHeadModel
GPT2LMHeadModel.from_pretrained(home / "hf").generate(torch.tensor([prompt]), max_new_tokens=1, do_sample=False)
""",
}


def say(text: str = "") -> None:
    print(text, file=sys.stderr, flush=True)


def ready(contestants: Sequence[Contestant], home: Path, threads: int) -> dict[str, Child]:
    """The processes of all engines that can take part; prints why the others cannot."""
    children = {}
    for one in contestants:
        try:
            if reason := one.missing():
                raise Failed(reason)
            once(one, "convert", home)
            children[one.name] = Child(one)
            children[one.name].ask("prepare", home, threads)
        except Failed as failure:
            say(f"  {one.name} is left out: {failure}")
            if gone := children.pop(one.name, None):
                gone.end()
    return children


@dataclass(slots=True)
class Figures:
    """The results of one engine in one case, round by round."""

    precision: str
    speed: list[float]
    """Tokens a second."""
    first: list[float]
    """Seconds to the first token; empty for translation."""
    share: list[float]
    """The share of the speed that the memory allows, at one row; else empty."""
    resident: float = 0.0
    """Megabytes."""
    ids: list[int] = field(default_factory=list)
    """The tokens generated in the round before the first, row by row."""


def turn(child: Child, case: Case, vocab: int, number: int, decoder: bool) -> tuple[float, float, list[list[int]]]:
    """Tokens a second, seconds to the first token, and the tokens.

    Ids are new in every round, and others for the first token: what an engine remembers of them does not help it.
    """
    time.sleep(PAUSE)
    first = child.ask("run", case.inputs(vocab, number, 1), 1, case.beams)[0] if decoder else 0.0
    seconds, ids = child.ask("run", case.inputs(vocab, number, 0), case.new, case.beams)
    return case.rows * (case.new - decoder) / (seconds - first), first, ids


def measure(
    workload: Workload, contestants: Sequence[Contestant], home: Path, *, rounds: int, threads: int
) -> Iterator[tuple[Case, dict[str, Figures], list[float]]]:
    """Each case with the figures of each contestant and of the memory; one round before that to warm up."""
    decoder = workload.family == "gpt"
    contestants = [one for one in contestants if workload.family in one.families]
    children = ready(contestants, home, threads)
    if not children:
        return
    memory = Child(Memory("memory", "float32"))
    memory.ask("prepare", home, threads)
    for case in workload.cases:
        bandwidth: list[float] = []
        table = {one.name: Figures(one.precision, [], [], []) for one in contestants if one.name in children}
        for number in range(rounds + 1):
            time.sleep(PAUSE)
            bandwidth += [memory.ask("read")] if number else []
            for name, figures in list(table.items()):
                try:
                    speed, first, ids = turn(children[name], case, workload.vocab, number, decoder)
                except Failed as failure:
                    say(f"  {name} is left out: {failure}")
                    children.pop(name).end()
                    del table[name]
                    continue
                if not number:
                    figures.ids, figures.resident = [id for row in ids for id in row], children[name].ask("resident")
                    continue
                figures.speed.append(speed)
                if decoder:
                    figures.first.append(first)
                if decoder and case.rows == 1:
                    figures.share.append(speed * bytes_read(home, figures.precision) / bandwidth[-1])
        yield case, table, bandwidth
    for child in [*children.values(), memory]:
        child.end()


def bytes_read(home: Path, precision: str) -> float:
    """Of GPT-2's matrices, for one token: every block, and the embedding as the output, which int4 keeps in int8."""
    sizes = read_config(home)
    dim, hidden = sizes["n_embd"], sizes["n_inner"]
    blocks, output = sizes["n_layer"] * (4 * dim * dim + 2 * dim * hidden), sizes["vocab_size"] * dim
    return blocks * WEIGHT_BYTES[precision] + output * max(1.0, WEIGHT_BYTES[precision])


def compare(table: dict[str, Figures], name: str) -> tuple[str, list[float]] | None:
    """Ours of the same precision, and how many times as fast it is, round by round."""
    own = next((own for own in (f"ours-{table[name].precision}", "ours-float32") if own in table), None)
    if own is None or name.startswith("ours-"):
        return None
    return own, [a / b for a, b in zip(table[own].speed, table[name].speed, strict=True)]


def show(title: str, table: dict[str, Figures], bandwidth: list[float]) -> dict[str, Any]:
    """Medians with their spread, and what ours is of each; then the best peer of each precision."""
    say(f"\n{title}; median and spread of {len(bandwidth)} rounds; memory is read at "
        f"{spread([each / 1e9 for each in bandwidth], 1)} GB/s")  # fmt: skip
    line = "  {:21} {:>22} {:>8} {:>8} {:>6} {:>8}  {}"
    say(line.format("", "tokens/s", "first ms", "MB", "same", "ceiling", "ours is"))
    reference = table.get("ours-float32") or next(iter(table.values()), None)
    rows: dict[str, Any] = {}
    best: dict[str, tuple[float, str]] = {}
    for name, figures in table.items():
        same = statistics.mean(a == b for a, b in zip(figures.ids, reference.ids, strict=True))
        first = f"{1000 * statistics.median(figures.first):,.0f}" if figures.first else ""
        share = f"{statistics.median(figures.share):.0%}" if figures.share else ""
        row = rows[name] = {
            "precision": figures.precision, "tokens_per_second": figures.speed, "first_token_seconds": figures.first,
            "share_of_ceiling": figures.share, "resident_mb": figures.resident, "same_tokens": same,
        }  # fmt: skip
        versus = ""
        if found := compare(table, name):
            own, ratios = found
            row["ratio"] = {"of": own, "rounds": ratios}
            best[figures.precision] = min(best.get(figures.precision, (np.inf, "")), (statistics.median(ratios), name))
            versus = f"{spread(ratios, 2)}×" + ("" if own.endswith(figures.precision) else f" ({own})")
        say(line.format(name, spread(figures.speed), first, f"{figures.resident:,.0f}", f"{same:.0%}", share, versus))
    for precision, (_, name) in best.items():
        ratio = rows[name]["ratio"]
        say(f"  best {precision} peer: {name}; {ratio['of']} is {spread(ratio['rounds'], 2)}×")
    return {"title": title, "memory_bytes_per_second": bandwidth, "rows": rows}


def spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = (f"{each:,.{digits}f}" for each in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low}–{high})"


def growth(workload: Workload, tables: Sequence[dict[str, Any]]) -> None:
    """The gain of many rows at once over one."""
    few, many = workload.cases[0].name, workload.cases[-1].name
    say(f"\n{many}: tokens/s as a multiple of {few}")
    for name in (name for name in tables[0]["rows"] if name in tables[-1]["rows"]):
        speeds = (table["rows"][name]["tokens_per_second"] for table in (tables[-1], tables[0]))
        say(f"  {name:21} {spread([a / b for a, b in zip(*speeds, strict=True)], 2)}×")


def start(home: Path, only: Sequence[Contestant], rounds: int) -> dict[str, Any]:
    """Seconds from the start of a process to the first token: import, load, read a prompt."""
    head = f"import sys, pathlib\nhome, prompt = pathlib.Path({str(home)!r}), list(range(2, 10))\n"
    names = [name for name in STARTS if any(one.name.startswith(name) and not one.missing() for one in only)]
    for one in only:
        if one.name in names:
            once(one, "convert", home)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + 1):
        for name in list(seconds):
            command = [sys.executable, "-c", f"{head}{STARTS[name]}print('done', flush=True)"]
            began = time.perf_counter()
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                answered = process.stdout is not None and process.stdout.readline()
                took = time.perf_counter() - began
            if answered:
                seconds[name] += [took] if round_ else []
            else:
                say(f"  {name} is left out: it wrote no token; run this by hand to see why:\n{command[-1]}")
                del seconds[name]
    say(f"\nstart: seconds from a new process to the first token of a small model, {rounds} rounds")
    for name, values in seconds.items():
        ratios = [b / a for a, b in zip(seconds.get("ours", values), values, strict=True)]
        versus = f"  ours is {spread(ratios, 2)}× as fast" if name != "ours" else ""
        say(f"  {name:21} {spread(values, 2):>22}{versus}")
    return {"title": "start", "seconds": seconds}


def chosen(text: str | None) -> list[Contestant]:
    """The engines whose name, or its part before a dash, is in the list."""
    everybody = [*OURS, *PEERS]
    wanted = text.split(",") if text else [one.name for one in everybody]
    for word in wanted:
        if not any(f"{one.name}-".startswith(f"{word}-") for one in everybody):
            raise SystemExit(f"--only has no {word!r}; choose from {', '.join(one.name for one in everybody)}")
    return [one for one in everybody if any(f"{one.name}-".startswith(f"{word}-") for word in wanted)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="of gpt, base, tiny, start; all without")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="NAMES", help="ours, ours-int8, ctranslate2-int8, …; all without")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="all figures of all rounds on standard output")
    options = parser.parse_args()
    contestants, tables = chosen(options.only), []
    for name in options.workloads.split(","):
        if name not in WORKLOADS:
            raise SystemExit(f"--workloads has no {name!r}; choose from {', '.join(WORKLOADS)}")
    if options.rounds < 1:
        raise SystemExit(f"--rounds must be at least 1, got {options.rounds}")
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    for name in options.workloads.split(","):
        workload = WORKLOADS[name]
        with tempfile.TemporaryDirectory(prefix="decode-") as directory:
            home = Path(directory)
            once(Maker("maker", "float32"), "make", workload, home)
            if name == "start":
                tables.append(start(home, contestants, options.rounds))
                continue
            found = []
            for case, table, bandwidth in measure(
                workload, contestants, home, rounds=options.rounds, threads=options.threads
            ):
                found.append(show(f"{name}, {case.name}", table, bandwidth))
            if found and workload.family == "gpt":
                growth(workload, found)
            tables += found
    if options.json:
        print(json.dumps({"threads": options.threads, "tables": tables}))


if __name__ == "__main__":
    main()
