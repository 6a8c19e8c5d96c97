"""The cost of capturing attention weights: python benchmarks/look.py

One head of one layer, a whole layer and everything, beside a plain forward pass of a decoder of 6 layers × 512 wide on
256 tokens; passes take turns, and ratios are of medians. With Chromium, also the page at 512 tokens × 12 layers × 12
heads: how long a frame takes while the pointer moves over its tokens.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from regard.hub import save_generation, save_model
from regard.inside.capture.ablation import without
from regard.inside.capture.weights import look
from regard.models import GPT, GPTConfig
from regard.tokens import Tokenizer

TURNS = 15


def costs(threads: int | None) -> dict[str, float]:
    """The median seconds of each way to run the model."""
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=8000, dim=512, depth=6, heads=8, ffn_dim=2048, max_len=256, dropout=0.0)).eval()
    ids = torch.randint(8000, (1, 256))
    ways: dict[str, Callable[[], Any]] = {
        "plain": lambda: without(model, []),
        "one head of one layer": lambda: look(model, layers=3, heads=2),
        "one layer": lambda: look(model, layers=3),
        "everything": lambda: look(model),
        "one head off": lambda: without(model, [(3, 2)]),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode():
        for _ in range(TURNS):
            for name, way in ways.items():
                with way():
                    begin = time.perf_counter()
                    model(ids)
                    times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(some) for name, some in times.items()}


def processor_seconds() -> float:
    """Of all processes below this one, the browser's: on a busy machine a clock says more about the neighbours."""
    parents, spent = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)], spent[int(folder.name)] = int(fields[1]), int(fields[11]) + int(fields[12])

    def is_below(process: int) -> bool:
        parent = parents.get(process, 0)
        return parent == os.getpid() or parent > 1 and is_below(parent)

    return sum(ticks for process, ticks in spent.items() if is_below(process)) / os.sysconf("SC_CLK_TCK")


FRAMES = 120
HOVER = """async (frames) => {
  const tokens = [...document.querySelectorAll(".tok")];
  const [work, between] = [[], []];
  let last = null;
  for (let i = 0; i < frames; i += 1) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    if (last !== null) between.push(now - last);
    last = now;
    const token = tokens[(i * 37) % tokens.length];
    token.dispatchEvent(new PointerEvent("pointerenter"));
    work.push(performance.now() - now);
  }
  const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
  return { work: middle(work), frame: middle(between), worst: Math.max(...between) };
}"""


def hovering() -> dict[str, float] | None:
    """Milliseconds of a frame on the page of a large look."""
    from playwright.sync_api import sync_playwright

    from regard.serve import run
    from regard.serve.settings import Settings

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = large(Path(folder) / "large")
        text = " ".join(f"word{i % 97}" for i in range(2000))
        found: dict[str, float] = {}

        def ready(address: str, store: Any) -> None:
            threading.Thread(target=drive, args=(address,), daemon=True).start()

        def drive(address: str) -> None:
            try:
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(
                        executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
                    )
                    page = browser.new_page(viewport={"width": 1400, "height": 1000})
                    page.set_default_timeout(300_000)
                    begin = time.perf_counter()
                    page.goto(f"{address}/?look#/look?model=large")
                    page.wait_for_selector("[data-matrix][data-drawn]")
                    found["first drawn, s"] = time.perf_counter() - begin
                    page.locator("button.head").first.click()
                    page.wait_for_timeout(3000)
                    before = processor_seconds()
                    told = page.evaluate(HOVER, FRAMES)
                    found["processor for a frame, ms"] = 1000 * (processor_seconds() - before) / FRAMES
                    found["tokens"] = page.locator(".tok").count()
                    found["script while hovering, ms"] = told["work"]
                    found["frame while hovering, ms"] = told["frame"]
                    found["slowest frame, ms"] = told["worst"]
                    browser.close()
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        words = (made[1].decode(made[1].encode(text)[:512]),)
        with suppress(KeyboardInterrupt):
            run.serve({"large": str(made[0])}, Settings(port=0, grace=0.0), preload=True, ready=ready, opening=words)
        return found


def large(folder: Path) -> tuple[Path, Tokenizer]:
    """A random decoder of 12 layers with 12 heads each."""
    tokenizer = Tokenizer.train(texts=[" ".join(f"word{i}" for i in range(97))] * 3, vocab_size=400)
    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(dim=192, depth=12, heads=12, ffn_dim=384, max_len=640, dropout=0.0)
    model = GPT(GPTConfig(vocab_size=len(tokenizer), **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    save_model(model, folder)
    tokenizer.save(folder)
    save_generation(folder, bos=1, eos=2, pad=0)
    return folder, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    found = costs(told.threads)
    page = hovering()
    if told.json:
        print(json.dumps({"seconds": found, "page": page}))
        return
    for name, seconds in found.items():
        print(f"{name:24}{1000 * seconds:9.1f} ms{100 * (seconds / found['plain'] - 1):+8.1f} %")
    for name, value in (page or {}).items():
        print(f"{name:30}{value:9.1f}")


if __name__ == "__main__":
    main()
