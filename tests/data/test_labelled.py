"""Examples for a task: generated ones, the user's, and what is held out of them."""

import pytest

from regard.data.sets import labelled_texts as labelled
from regard.data.sets.labelled_texts import EMBEDDED, ExamplesConfig

FIELDS = {
    "classify": ("text", "label"), "tag": ("text", "entities"), "answer": ("question", "passage", "answer"),
    "embed": ("a", "b", "score"), "instruct": ("prompt", "answer"),
}  # fmt: skip


@pytest.mark.parametrize("task", EMBEDDED)
def test_every_task_has_its_embedded_examples(task, monkeypatch):
    monkeypatch.setattr(labelled, "HELD_OUT", 50)
    data = ExamplesConfig(task=task, epoch_size=50)
    train, valid = data.split()
    held_out = data.held_out()
    assert data.embedded and train and valid and held_out
    assert all(hasattr(train[0], field) for field in FIELDS[task])
    seen = {repr(example) for example in train}
    for others in (valid, held_out):
        same = [one for one in others if repr(one) in seen and getattr(one, "entities", True)]
        assert not same, "held out is held out, but for sentences in which there is nothing to find"
    assert data.generated("train", 1) != train == data.generated("train", 0), "fresh in every epoch, but the same again"


def test_the_table_of_tasks_is_complete():
    assert set(EMBEDDED) == set(FIELDS)


def test_every_tenth_of_a_file_is_held_out(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(25)))
    train, held = ExamplesConfig(train=str(path)).split()
    assert [example.text for example in held] == ["text 1", "text 11", "text 21"] and len(train) == 22
    assert held[1].line == 12
    assert ExamplesConfig(train=str(path)).held_out() == held


def test_validation_and_test_files(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"sentence": "{name}", "class": 3}}\n')
    data = ExamplesConfig(
        **{name: str(tmp_path / f"{name}.jsonl") for name in ("train", "valid", "test")},
        columns=("text=sentence", "label=class"),
    )
    (train,), (valid,) = data.split()
    assert (train.text, valid.text, data.held_out()[0].text, train.label) == ("train", "valid", "test", "3")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"valid": "v.tsv"}, "validation examples without training examples; give --data.train too"),
        ({"tune": "lora"}, "tune='lora' needs weights to start from; give --data.base"),
        ({"columns": ("sentence",)}, "columns are given as text=sentence,label=class, got 'sentence'"),
        ({"hidden": 1.0}, r"hidden=1.0 is not in \[0, 1\)"),
        ({"hidden": 0.5, "task": "instruct"}, "leave out hidden"),
        ({"rank": 0}, "rank=0 must be at least 1"),
    ],
)
def test_settings_that_make_no_sense(fields, message):
    with pytest.raises(ValueError, match=message):
        ExamplesConfig(**fields)


def test_one_example_cannot_be_split(tmp_path):
    (tmp_path / "t.tsv").write_text("a text\ta\n")
    with pytest.raises(ValueError, match="one example cannot be split; give --data.valid"):
        ExamplesConfig(train=str(tmp_path / "t.tsv")).split()
