"""Transcription beside faster-whisper: the same weights, the same recording, in one interleaved run.

    pip install faster-whisper
    python benchmarks/transcribe.py CTRANSLATE2_DIRECTORY RECORDING [--seconds 300] [--rounds 2] [--threads 1]

Greedy, in English, without falling back to sampling. Every engine is a process of its own, which loads the model, warms
up on the first window and then takes its turn in every round while the others sleep. Times are CPU seconds, so that
others on the machine disturb little; the real-time factor is theirs over the recording's length, the memory is the
process's largest. The texts of one precision are compared, too.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

ENGINES = ("regard float32", "faster-whisper float32", "regard int8", "faster-whisper int8")


def work(engine: str, directory: str, recording: str, seconds: int, threads: int) -> None:
    """Answer each line on stdin with the CPU seconds of a transcription, its text, and the memory so far."""
    from regard.data.readers.audio_files import open_audio

    samples = open_audio(recording).samples(16_000, 0, 16_000 * seconds)
    name, kind = engine.rsplit(" ", 1)
    if name == "regard":
        import torch

        import regard

        torch.set_num_threads(threads)
        task: Any = regard.load(directory, quantize="none" if kind == "float32" else "int8")
        task.limit_engine(**task._limits, threads=threads)

        def transcribe(part: Any) -> str:
            return "".join(segment.text for segment in task.transcribe(part, language="en", temperature=0.0).segments)
    else:
        from faster_whisper import WhisperModel

        model = WhisperModel(directory, device="cpu", compute_type=kind, cpu_threads=threads)

        def transcribe(part: Any) -> str:
            return "".join(segment.text for segment in model.transcribe(part, "en", beam_size=1, temperature=0.0)[0])

    transcribe(samples[: 30 * 16_000])
    print(json.dumps({"ready": len(samples) / 16_000}), flush=True)
    for _ in sys.stdin:
        begin, wall = time.process_time(), time.perf_counter()
        text = transcribe(samples)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row = dict(cpu=time.process_time() - begin, wall=time.perf_counter() - wall, text=text, memory=memory)
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("recording")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        work(options.engine, options.directory, options.recording, options.seconds, options.threads)
        return
    processes, rows = {}, {engine: list[dict[str, Any]]() for engine in ENGINES}
    for engine in ENGINES:
        command = [sys.executable, *sys.argv, "--engine", engine]
        env = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
        processes[engine] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        seconds = json.loads(processes[engine].stdout.readline())["ready"]  # type: ignore[union-attr]
    for _ in range(options.rounds):
        for engine, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            rows[engine].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    print(f"{seconds:.0f} s of audio, {options.rounds} rounds, threads: {options.threads}")
    for engine, own in rows.items():
        peers = rows[engine.replace("regard", "faster-whisper")]
        ratio = statistics.median(peer["cpu"] / row["cpu"] for row, peer in zip(own, peers, strict=True))
        cpu = statistics.median(row["cpu"] for row in own)
        beside = f"  {ratio:.2f}x faster-whisper" if engine.startswith("regard") else ""
        print(f"{engine:24}{cpu:7.1f} s  real-time factor {cpu / seconds:.3f}  {own[-1]['memory']:6.0f} MB{beside}")
    for kind in ("float32", "int8"):
        same = rows[f"regard {kind}"][0]["text"] == rows[f"faster-whisper {kind}"][0]["text"]
        print(f"{kind}: the texts are {'equal' if same else 'different'}")


if __name__ == "__main__":
    main()
