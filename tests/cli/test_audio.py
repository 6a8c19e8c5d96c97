"""Where transcripts are written."""

import pytest

from regard.cli.audio import written


def test_a_transcript_never_replaces_its_recording(tmp_path):
    talk, other = tmp_path / "talk.txt", tmp_path / "other.wav"
    talk.write_bytes(b"RIFF")
    for names, out in (((str(talk),), talk), ((str(talk),), tmp_path), ((str(other), str(talk)), tmp_path)):
        with pytest.raises(ValueError, match="would be overwritten; choose another --out"):
            written(names, out, "txt")
    assert written((str(other),), tmp_path, "txt") == [tmp_path / "other.txt"]
    assert written((str(other),), tmp_path / "new.srt", "srt") == [tmp_path / "new.srt"]


def test_several_recordings_need_a_folder_and_different_names(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        written(("a.wav", "b.wav"), tmp_path / "none", "txt")
    with pytest.raises(ValueError, match="both be written"):
        written(("a/talk.wav", "b/talk.wav"), tmp_path, "txt")
