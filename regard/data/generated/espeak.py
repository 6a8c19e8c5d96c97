"""Texts spoken by eSpeak NG, in a process of its own: its noise comes from a global state, so that only a fresh process
that speaks in a fixed order gives the same bytes again.

python -m regard.data.generated.espeak < lines > samples
    lines: [voice, words a minute, pitch, text] as JSON; samples: their number in 8 bytes, then 16 bits each, per line
"""

import ctypes
import json
import struct
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

SYNCHRONOUS, UTF8, RATE, PITCH = 2, 1, 1, 3
"""eSpeak's numbers: the kind of output, the encoding of the text, and two of its parameters."""
SAMPLE_RATE = 22_050
NEEDS = "speech is spoken by eSpeak NG, which is not installed: pip install 'regard[speech]'"

Line = tuple[str, int, int, str]
"""A voice, words a minute, the pitch from 0 to 99, and a text."""


def speak(lines: Sequence[Line]) -> list[np.ndarray]:
    """The samples of texts, 22,050 a second, from a fresh process."""
    check_installed()
    written = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = subprocess.run([sys.executable, "-m", __name__], input=written, capture_output=True)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"eSpeak NG failed ({' '.join(reason)}); install it again: pip install 'regard[speech]'")
    samples, at = [], 0
    for _ in lines:
        (count,) = struct.unpack_from("<q", done.stdout, at)
        samples.append(np.frombuffer(done.stdout, dtype="<i2", count=count, offset=at + 8))
        at += 8 + 2 * count
    return samples


def check_installed() -> None:
    """Raise a ValueError without the package that holds eSpeak NG."""
    try:
        import espeakng_loader  # noqa: F401
    except ImportError:
        raise ValueError(NEEDS) from None


def main() -> None:
    """Speak the lines of standard input."""
    import espeakng_loader

    library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
    if library.espeak_Initialize(SYNCHRONOUS, 0, str(espeakng_loader.get_data_path()).encode(), 0) != SAMPLE_RATE:
        raise SystemExit("its data cannot be read")
    pieces: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def receive(samples: ctypes._Pointer, count: int, events: int) -> int:
        if samples and count > 0:
            pieces.append(ctypes.string_at(samples, 2 * count))
        return 0

    library.espeak_SetSynthCallback(receive)
    for voice, rate, pitch, text in map(json.loads, sys.stdin):
        if library.espeak_SetVoiceByName(voice.encode()):
            raise SystemExit(f"no voice {voice}")
        library.espeak_SetParameter(RATE, rate, 0)
        library.espeak_SetParameter(PITCH, pitch, 0)
        content = text.encode()
        library.espeak_Synth(content, len(content) + 1, 0, 0, 0, UTF8, None, None)
        spoken = b"".join(pieces)
        pieces.clear()
        sys.stdout.buffer.write(struct.pack("<q", len(spoken) // 2) + spoken)


if __name__ == "__main__":
    main()
