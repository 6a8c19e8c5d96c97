"""Each recipe from data to scores, on a user's files and on the embedded data; broken runs go on as if unbroken."""

import inspect
import json
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.data.generated import docs
from regard.data.sets import labelled_texts as labelled
from regard.data.sets import running_text as text
from regard.data.sets import text_pairs
from regard.data.sets.batches import IGNORE, IdPair
from regard.eval import scores
from regard.eval.report import report
from regard.recipes import Recipe, fit, recipe
from regard.recipes.finetune import PROMPT_END, collate_instructions, encode_instructions
from regard.recipes.t5 import corrupt_windows
from regard.runs.fit import prepare, started, with_steps
from regard.tasks import load, metrics, translator
from regard.train import loop as loop_module
from regard.train.loop import Fitted, read_metrics
from regard.train.progress import Line
from tests.recipes.tiny import COLOURS, RECURRENT, plan

TASKS = ("classify", "tag", "answer", "embed", "instruct")
ALL = ("lm", "bert", "t5", "spans", *TASKS)
SCORES = {
    "bert": {"masked_accuracy"},
    "lm": {"bits_per_byte", "xz", "bz2", "bytes"}, "t5": {"bleu", "chrf", "exact_match"},
    "classify": {"accuracy", "macro_f1"}, "tag": {"precision", "recall", "f1"},
    "answer": {"exact_match"}, "embed": {"spearman"}, "instruct": {"exact_match"},
}  # fmt: skip


def losses(out):
    return {row["step"]: row["loss"] for row in read_metrics(out / "metrics.jsonl") if "loss" in row}


def told(out, capsys, **how):
    report(out, Fitted(6, 1.0, 2.5), as_json=False, **how)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [*ALL, *RECURRENT])
def test_on_the_users_files(name, tiny, capsys):
    out = tiny.run(name)
    seen = losses(out)
    assert list(seen) == [1, 2, 3, 4, 5, 6] and all(math.isfinite(value) for value in seen.values())
    assert Recipe.load(out / "recipe.toml").name == ("lm" if name in RECURRENT else name)
    shown = told(out, capsys)
    assert "6 steps in 0.0 minutes; validation loss 2.5" in shown and "Try next:\n  regard " in shown
    if name == "spans":
        with pytest.raises(ValueError, match="was only pre-trained; train it for"):
            scores.evaluate(out, {})
        return
    found = scores.evaluate(out, {})
    wanted = SCORES.get(name, SCORES["lm"])
    assert wanted <= found.scores.keys() and "on held-out data: " in shown
    assert all(math.isfinite(found.scores[key]) for key in wanted)
    if name in TASKS:
        assert len(found.outputs) == found.scores["examples"] == 8, "a fifth of forty"


@pytest.mark.parametrize("name", [*ALL, "gru"])
def test_a_broken_run_goes_on_as_if_unbroken(name, tiny, tmp_path, monkeypatch):
    whole, steps = losses(tiny.run(name)), iter(range(100))

    def dies(batches):
        if inspect.isgenerator(batches) and next(steps) == 4:  # type checks call `next` too
            raise RuntimeError("the power went out")
        return next(batches)

    monkeypatch.setattr(loop_module, "next", dies, raising=False)
    with pytest.raises(RuntimeError, match="power"):
        fit(tiny.plan(name), tmp_path, quiet=True)
    monkeypatch.undo()
    assert max(losses(tmp_path)) == 4
    fit(tiny.plan(name), tmp_path, resume=True, quiet=True)
    assert losses(tmp_path) == whole


@pytest.fixture
def little(monkeypatch):
    """The embedded data, but little of it."""
    for module, name in ((labelled, "HELD_OUT"), (text_pairs, "HELD_OUT"), (translator, "TEST_EXAMPLES")):
        monkeypatch.setattr(module, name, 5)
    whole = labelled.EMBEDDED["classify"]  # finite: always all names
    monkeypatch.setitem(
        labelled.EMBEDDED, "classify", lambda *which: whole(*which)[: 600 if which[0] == "train" else 50]
    )
    for module in (text, docs):
        real = docs.documentation
        monkeypatch.setattr(module, "documentation", lambda split, real=real: real(split)[:20_000])
    docs.documentation_hash.cache_clear()
    yield
    docs.documentation_hash.cache_clear()


@pytest.mark.parametrize("name", ALL)
def test_on_the_embedded_data(name, little, tmp_path, capsys):
    changes = {"train.steps": 2, "train.eval_every": 2}
    if name in TASKS or name == "t5":
        changes["data.epoch_size"] = 40
    fit(plan(name, changes), tmp_path, quiet=True)
    assert len(losses(tmp_path)) == 2
    if (told_so := tmp_path / "generation_config.json").exists():  # what has learned nothing does not stop
        told_so.write_text(json.dumps(json.loads(told_so.read_text()) | {"max_length": 9}))
    shown = told(tmp_path, capsys)
    assert "Try next:" in shown
    if name == "t5":
        names = {"translate_exact_match", "language_exact_match", "date_exact_match", "summarize_rouge_l"}
        assert names | {"lead_sentence_rouge_l"} <= scores.evaluate(tmp_path, {}).scores.keys()
        assert "summarize ROUGE-L" in shown and "translate exact match" in shown


# ---- language models --------------------------------------------------------------------------------------------


def test_the_text_is_recorded_with_the_run(tiny):
    data = Recipe.load(tiny.run("lm") / "recipe.toml").data
    assert len(data.text) == 2 and data.sha256 == data.digest() and len(data.sha256) == 64


def test_a_run_is_not_resumed_on_another_text(tiny, tmp_path):
    (tmp_path / "t.txt").write_text("some text " * 300)
    changes = {"data__text": [str(tmp_path / "t.txt")]}
    fit(tiny.plan("lm", **changes), tmp_path / "run", quiet=True)
    (tmp_path / "t.txt").write_text("other text " * 300)
    with pytest.raises(ValueError, match=r"t\.txt changed since .* was trained on it; put the old data back"):
        fit(tiny.plan("lm", **changes), tmp_path / "run", quiet=True, resume=True)


@pytest.mark.parametrize("name", ["lm", "gru"])
def test_bits_per_byte_by_hand(name, tiny):
    """Windows of the context; each token but the first is told once, from what its window shows before it."""
    writer = load(tiny.run(name))
    text, context = "The café, a cat. " * 40, writer.context
    ids, total = writer.tokenizer.encode(text), 0.0
    for start in range(0, len(ids) - 1, context):
        window = torch.tensor(ids[start : start + context + 1])
        with torch.no_grad():
            total += F.cross_entropy(writer.model(window[None, :-1])[0], window[1:], reduction="sum").item()
    assert len(ids) > 2 * context
    scored, wanted = (writer.model, writer.tokenizer, context, text), total / math.log(2) / len(text.encode())
    assert metrics.bits_per_byte(*scored) == pytest.approx(wanted, rel=1e-5)
    assert metrics.text_scores(*scored)["bytes"] == len(text.encode())


@pytest.mark.parametrize("kind", ["char", "word"])
def test_other_kinds_of_tokens(kind, tiny, tmp_path):
    fit(tiny.plan("lm", data__kind=kind), tmp_path, quiet=True)
    assert load(tmp_path).tokenizer.kind == kind


def test_recurrent_models_race_on_the_same_windows(tiny):
    gpt, gru = (Recipe.load(tiny.run(name) / "recipe.toml") for name in ("lm", "gru"))
    assert gpt.model.max_len == gru.model.max_len and gru.family == "gru"


# ---- examples in a prompt, and instructions ---------------------------------------------------------------------


def test_few_shot_takes_the_likeliest_label(tiny):
    run = tiny.run("lm")
    changes = tiny.files["classify"] | {"data.task": "classify"}
    found = scores.evaluate(run, changes, few_shot=2, limit=3)
    writer = load(run)
    train, held = labelled.ExamplesConfig(train=changes["data.train"]).split()
    shots = [next(e for e in train if e.label == label) for label in sorted(COLOURS)[:2]]
    front = "".join(f"Text: {e.text}\nLabel: {e.label}\n\n" for e in shots)
    wanted = []
    for example in held[:3]:
        prompt = f"{front}Text: {example.text}\nLabel:"
        ids, best = writer.tokenizer.encode(prompt), {}
        for label in COLOURS:
            back = writer.tokenizer.encode(f" {label}")
            with torch.no_grad():
                log_probs = writer.model(torch.tensor([ids + back]))[0].log_softmax(-1)
            best[label] = sum(float(log_probs[len(ids) - 1 + i, id]) for i, id in enumerate(back))
        wanted.append(max(best, key=best.get))
    assert found.outputs == wanted and found.scores["shots"] == 2 and found.scores["examples"] == 3
    assert 0 <= found.scores["accuracy"] <= 100


def test_few_shot_is_for_models_that_write(tiny):
    with pytest.raises(ValueError, match="examples in a prompt are for language models"):
        scores.evaluate(tiny.run("classify"), {}, few_shot=2)
    with pytest.raises(ValueError, match="--few-shot is for classification, not for tag"):
        scores.evaluate(tiny.run("lm"), {"data.task": "tag"} | tiny.files["tag"], few_shot=2)


def test_an_instructed_model_can_be_prompted_with_other_data(tiny):
    found = scores.evaluate(tiny.run("instruct"), tiny.files["classify"], few_shot=1, limit=2)
    assert found.scores["examples"] == 2


def test_instructions_are_learned_from_the_answer_alone(tiny):
    data = labelled.ExamplesConfig(task="instruct", train=tiny.files["instruct"]["data.train"])
    tokenizer = load(tiny.run("instruct")).tokenizer
    examples = data.read(data.train)[:3]
    pairs = encode_instructions(examples, tokenizer=tokenizer, config=None, max_len=64)
    batch = collate_instructions(pairs, tokenizer=tokenizer, config=None, task="instruct")
    for ids, targets, example in zip(batch.inputs["ids"], batch.targets, examples, strict=True):
        front = tokenizer.encode(example.prompt + PROMPT_END)
        answer = [*tokenizer.encode(example.answer), tokenizer.eos]
        assert targets.tolist() == [IGNORE] * (len(front) - 1) + answer + [IGNORE] * (
            len(ids) - len(front) - len(answer) + 1
        )
        assert ids[: len(front) + len(answer) - 1].tolist() == front + answer[:-1]
    with pytest.raises(ValueError, match="no prompt with its answer fits into 5 tokens; raise --data.max-len"):
        encode_instructions(examples, tokenizer=tokenizer, config=None, max_len=5)


def test_an_instructed_model_stops_and_answers_as_it_was_asked(tiny):
    writer = load(tiny.run("instruct"))
    assert writer.generation["eos"] == writer.tokenizer.eos and writer.prompt_end == PROMPT_END


# ---- examples of the other tasks --------------------------------------------------------------------------------


def job_of(tiny, name, tmp_path, **changes):
    own = tiny.plan(name, **changes)
    return prepare(own.data, own, tmp_path / "run", False, Line(quiet=True))


def test_tags_stand_on_the_first_token_of_each_word(tiny, tmp_path):
    job = job_of(tiny, "tag", tmp_path)
    labels = job.recipe.model.labels
    assert labels == ("O", "B-ANIMAL", "I-ANIMAL", "B-PLACE", "I-PLACE")
    for one in job.stream.epoch(0)[:10]:
        framed = one.frames[0]
        said = [labels[t] for t in one.target if t != IGNORE]
        assert said == ["O", "O", "B-ANIMAL", "O", "B-PLACE", "I-PLACE", "O"]
        words = [word for word, target in zip(framed.words, one.target, strict=True) if target != IGNORE]
        assert words == sorted(set(framed.words) - {None}), "one target a word"


def test_answers_are_marked_by_their_first_and_last_token(tiny, tmp_path):
    job = job_of(tiny, "answer", tmp_path)
    data = job.recipe.data
    tokenizer = job.readers["text"]
    for one, example in zip(job.stream.epoch(0), data.split()[0], strict=True):
        first, last = one.target
        if example.answer is None:
            assert (first, last) == (0, 0)
            continue
        framed = one.frames[0]
        assert {framed.side[first], framed.side[last]} == {1}
        assert example.passage[framed.offsets[first][0] : framed.offsets[last][1]] == example.answer
        assert tokenizer.decode(framed.ids[first : last + 1]).strip() == example.answer


def test_an_answer_that_was_cut_away_is_none(tiny, tmp_path):
    job = job_of(tiny, "answer", tmp_path, data__max_len=14)
    assert all(one.target == (0, 0) or max(one.target) < len(one.frames[0]) for one in job.stream.epoch(0))
    assert any(one.target == (0, 0) for one in job.stream.epoch(0))


def test_pairs_of_texts_share_a_batch(tiny, tmp_path):
    _, _, batch = next(job_of(tiny, "embed", tmp_path).stream.batches())
    assert len(batch.inputs["ids"]) == 2 * len(batch.targets) == 2 * len(batch.examples)


def test_second_texts_are_read_scored_and_shown(tiny, tmp_path, capsys):
    rows = [{"text": f"cat {i}", "second": f"dog {i}", "label": "ab"[i % 2]} for i in range(20)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fit(tiny.plan("classify", data__train=str(tmp_path / "p.jsonl")), tmp_path / "run", quiet=True)
    first = Recipe.load(tmp_path / "run" / "recipe.toml").data.split()[1][0]
    assert f"--second '{first.second}'" in told(tmp_path / "run", capsys)
    loaded = load(tmp_path / "run")
    (with_second,), (alone,) = loaded.classify([first.text], [first.second]), loaded.classify([first.text])
    assert scores.evaluate(tmp_path / "run", {}).outputs[0] == with_second[0].label
    assert with_second[0].probability != alone[0].probability


@pytest.mark.parametrize("name", ["classify", "tag", "answer"])
def test_hidden_words_are_masks_and_others_each_epoch(name, tiny, tmp_path):
    job = job_of(tiny, name, tmp_path, data__hidden=0.3)
    plain = job_of(tiny, name, tmp_path, data__hidden=0.0).stream.epoch(0)
    epochs = [job.stream.epoch(number) for number in (0, 0, 1)]
    ids = [[one.frames[0].ids for one in epoch] for epoch in epochs]
    assert ids[0] == ids[1] != ids[2]
    changed = [
        (seen, true) for one, other in zip(epochs[0], plain, strict=True)
        for seen, true in zip(one.frames[0].ids, other.frames[0].ids, strict=True) if seen != true
    ]  # fmt: skip
    total = sum(len(one.frames[0]) - 2 for one in plain)
    assert {seen for seen, _ in changed} == {job.readers["text"].mask} and 0.2 < len(changed) / total < 0.4
    assert not {true for _, true in changed} & {job.readers["text"].bos, job.readers["text"].eos}
    assert [one.target for one in epochs[0]] == [one.target for one in plain]


def test_passes_over_the_data_become_steps(tiny, tmp_path):
    job = job_of(tiny, "classify", tmp_path, train__epochs=2.5)
    assert with_steps(job.recipe, job.stream).train.steps == math.ceil(2.5 * job.stream.count())


def test_steps_that_are_asked_for_count(tiny):
    base = str(tiny.run("bert"))
    assert recipe("classify", {"data.base": base}).train.epochs is not None
    changed = recipe("classify", {"data.base": base, "train.steps": 4}).train
    assert changed.steps == 4 and changed.epochs is None


# ---- T5 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 22, 23, 24, 45, 46, 47, 500])
def test_windows_of_any_text_are_corrupted_and_can_be_restored(length):
    sentinels = list(range(1000, 1032))
    data = text.SpansConfig(max_len=24)
    for seed in range(5):
        pairs = corrupt_windows(np.arange(length), sentinels, data, random.Random(seed))
        assert pairs and all(isinstance(pair, IdPair) for pair in pairs)
        for pair in pairs:
            pieces, last = {}, None
            for id in pair.target:
                if id >= 1000:
                    last = id
                pieces.setdefault(last, []).extend([id] if id < 1000 else [])
            whole = [x for id in pair.source for x in (pieces[id] if id >= 1000 else [id])]
            assert whole == list(range(whole[0], whole[0] + len(whole))) and len(whole) == min(23, length)


def test_tasks_start_from_a_pretrained_run(tiny, tmp_path):
    base = tiny.run("spans")
    own = recipe("t5", tiny.files["t5"] | {"data.base": str(base), "train.steps": 2, "train.warmup": 1})
    assert own.model == Recipe.load(base / "recipe.toml").model and own.train.optimizer == "adamw"
    job = started(prepare(own.data, own, tmp_path, False, Line(quiet=True)))
    first = job.build(job.recipe)
    theirs = load(base)
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), theirs.model.parameters(), strict=True))
    assert job.readers["text"].sentinels == theirs.tokenizer.sentinels
    fit(own, tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match="is a bert; t5 starts from a T5"):
        recipe("t5", {"data.base": str(tiny.run("bert"))})


def test_answers_are_as_long_as_asked(tiny):
    translator = load(tiny.run("t5"))
    prompt = "colour: red cat"
    assert len(translator.translate([prompt], beams=1, max_new_tokens=3)[0][0].ids) <= 3
    assert "".join(translator.stream(prompt, max_new_tokens=3)) == translator.generate([prompt], max_new_tokens=3)[0]
