"""Prepared recordings for encoder–decoders that write what is said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.hub.transcription import STEP
from regard.modalities.audio import AUDIO
from regard.tasks.engine_task import BEAMS
from regard.tasks.prepared import Generation, Outputs, Prepared, TokenSequence, check_length, check_tokens
from regard.tokens import Tokenizer
from regard.tokens.windows import FrameWindows

LOOKED_AT = 10
"""Seconds at the beginning of a recording that are looked at: attention weights grow with their square."""


@dataclass(frozen=True, slots=True)
class TimedTokens:
    """A vocabulary and the timestamps behind it, which many tokenizers do not hold."""

    tokenizer: Tokenizer
    first: int
    """The timestamp 0.00."""

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A readable label for each id; that of a timestamp is its seconds."""
        return [
            f"<|{(id - self.first) * STEP:.2f}|>" if id >= self.first else self.tokenizer.pieces([id])[0] for id in ids
        ]


def read_speech(
    task: Any, *audio: Any, target: str | Sequence[int] | None = None, kept: int | None = None, cut: bool = False,
    greedy: bool = False,
) -> Prepared:  # fmt: skip
    """The first seconds of a recording, and what is said in them: `target`, or what the model writes greedily.

    It writes for a whole window, which ends in silence; that silence is left out of what is looked at."""
    model, mel, tokens = task.model, task.mel, task.tokens
    if len(audio) != 1:
        raise ValueError(f"a {type(model).__name__} reads one recording at a time, got {len(audio)}")
    if kept is not None:
        raise ValueError(f"kept is for language models, and a {type(model).__name__} is none; leave it out")
    recording, size = AUDIO.read(audio[0]), model.config.frames
    windows = FrameWindows(recording, mel)
    count = min(size, windows.length, LOOKED_AT * mel.rate // mel.hop)
    window = windows.window(0, count, size) if count else None
    if window is None:
        raise ValueError(f"{recording.name} is silent for its first {mel.seconds(float(count)):.2f} s; give it a part")
    said = task.tokenizer.encode(f" {target.strip()}") if isinstance(target, str) else target
    front, ids = task.written_for(window, None if said is None else check_tokens(model, said))
    frames, whole = window[None, :count].to(next(model.parameters())), [*front, *ids]
    check_length(model, len(whole))
    names, step = TimedTokens(task.tokenizer, task.rules.first), 2 * mel.seconds(1.0)
    sound = {"frames": frames, "lengths": torch.tensor([count])}
    seconds = [f"{place * step:.2f}" for place in range(-(-count // 2))]
    room = model.config.max_len - len(whole)

    def choose(prepared: Prepared) -> Outputs:
        return Outputs(list(range(len(whole))), [*whole[1:], tokens.end], torch.eye(len(whole)))

    return Prepared(
        model=model, inputs=sound | {"target": torch.tensor([whole])}, run=lambda inputs: model(**inputs),
        row_sequence=1, sound=AUDIO.send((recording.samples(mel.rate, 0, count * mel.hop), mel.rate)),
        sequences=[
            TokenSequence("audio", f"Vectors of {1000 * step:.0f} ms, by their seconds", seconds, seconds=step),
            TokenSequence("text", "Transcript", names.pieces(whole), whole, prefix=len(front)),
        ],
        choose=choose, tokenizer=names, forbidden=tokens.suppressed, fixed=len(front), traceable=False,
        request={"text": task.text(ids), "target": ids, "step": step},
        generation=Generation(
            prefix=front, room=room, ends=(tokens.end,), forbidden=tokens.suppressed, inputs=sound,
            decode=lambda new: task.text([id for id in new if id != tokens.end]),
            search=lambda: task.request(window, front, beams=BEAMS, constrain=task.rules),
        ),
    )  # fmt: skip
