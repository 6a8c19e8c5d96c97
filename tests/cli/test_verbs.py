"""What a trained model does with a text, as it is typed: on stdout, as JSON, and the same from Python."""

import csv
import io
import json
import re

import numpy as np
import pytest
import torch

from regard.cli.query import parts
from regard.data.terminal import printable
from regard.decode import Sampling
from regard.recipes import fit
from regard.tasks import load
from tests.cli.calling import call, fails, options, rows, said
from tests.recipes.tiny import SIZES

TEXT = "The red cat sees a cat in May."
FEW = {"train.steps": 4, "train.warmup": 1, "train.eval_every": 2}


@pytest.fixture(scope="module")
def adapter(tiny, tmp_path_factory):
    """A classifier with low-rank detours on the run of hidden words, through the command line."""
    out = tmp_path_factory.mktemp("runs") / "lora"
    given = options(tiny.files["classify"] | FEW | {"train.lr": "1e-2"})
    call("finetune", tiny.run("bert"), "--task", "classify", "--tune", "lora", "--out", out, "--quiet", *given)
    return out


def test_train_reads_two_files_of_text(tiny, tmp_path, capsys):
    sizes = options(SIZES | {"train.steps": 2, "train.warmup": 1})
    shown = said(capsys, "train", "lm", "--out", tmp_path / "run", "--quiet", *options(tiny.files["lm"]), *sizes)
    assert any(line.startswith("on held-out data: bits per byte") for line in shown)
    assert any(line.startswith(f"  regard generate {tmp_path / 'run'}") for line in shown)
    (row,) = rows(capsys, "train", "lm", "--out", tmp_path / "run", "--quiet", "--resume")
    assert row["steps"] == 2 and {"bits_per_byte", "xz", "bz2", "valid_loss", "minutes"} <= row.keys()
    recorded = (tmp_path / "run" / "recipe.toml").read_text()
    assert "a.txt" in recorded and "b.txt" in recorded and re.search(r'sha256 = "[0-9a-f]{64}"', recorded)


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_train_recurrent_models_on_the_same_text(cell, tiny, tmp_path, capsys):
    sizes = options({key: value for key, value in SIZES.items() if key not in ("model.heads", "model.ffn_dim")})
    words = ["--out", tmp_path / "run", "--quiet", *options(tiny.files["lm"]), *sizes, "--train.steps", "2"]
    (row,) = rows(capsys, "train", "lm", "--model", cell, *words)
    assert row["steps"] == 2 and load(tmp_path / "run").model.config.cell == cell


# ---- writers ----------------------------------------------------------------------------------------------------


def test_generate_prints_the_prompt_and_what_follows(tiny, capsys):
    run, how = tiny.run("lm"), ["--max-new-tokens", 12, "--temperature", 0.8, "--top-p", 0.95, "--seed", 1]
    wanted = load(run).generate(["The red"], max_new_tokens=12, sampling=Sampling(temperature=0.8, top_p=0.95, seed=1))
    call("generate", run, "The red", *how)
    assert capsys.readouterr().out == printable("The red" + wanted[0]) + "\n"
    assert rows(capsys, "generate", run, "The red", *how) == [{"prompt": "The red", "text": wanted[0]}]
    call("generate", run, "The red", *how[:-1], 2)
    assert capsys.readouterr().out != printable("The red" + wanted[0]) + "\n"


def test_temperature_0_is_greedy(tiny, capsys):
    greedy = rows(capsys, "generate", tiny.run("lm"), "The red", "--max-new-tokens", 9)
    assert rows(capsys, "generate", tiny.run("lm"), "The red", "--max-new-tokens", 9, "--temperature", 0) == greedy
    greedy = rows(capsys, "translate", tiny.run("t5"), "colour: red cat", "--beam", 1)
    assert rows(capsys, "translate", tiny.run("t5"), "colour: red cat", "--temperature", 0, "--top-p", 0.9) == greedy


def test_generate_for_several_prompts_and_stdin(tiny, capsys, monkeypatch):
    run = tiny.run("gru")
    both = rows(capsys, "generate", run, "The red", "No", "--max-new-tokens", 5)
    assert [row["prompt"] for row in both] == ["The red", "No"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The red\nNo\n")))
    assert rows(capsys, "generate", run, "--max-new-tokens", 5) == both


def test_generate_is_shown_as_it_is_written(tiny, monkeypatch):
    """Each piece is written and flushed before the next one is thought of."""
    seen = []

    class Terminal(io.StringIO):
        def flush(self):
            if not seen or seen[-1] != self.getvalue():
                seen.append(self.getvalue())

    monkeypatch.setattr("sys.stdout", Terminal())
    call("generate", tiny.run("lm"), "The red", "--max-new-tokens", 8)
    assert len(seen) > 3 and all(later.startswith(earlier) for earlier, later in zip(seen, seen[1:], strict=False))


def test_generate_answers_the_tasks_of_a_t5_and_instructions(tiny, capsys):
    (row,) = rows(capsys, "generate", tiny.run("t5"), "colour: red cat", "--max-new-tokens", 4)
    call("generate", tiny.run("t5"), "colour: red cat", "--max-new-tokens", 4)
    assert capsys.readouterr().out == printable(row["text"]) + "\n", "an answer stands alone"
    (row,) = rows(capsys, "generate", tiny.run("instruct"), "colour of the red cat", "--max-new-tokens", 4)
    call("generate", tiny.run("instruct"), "colour of the red cat", "--max-new-tokens", 4)
    assert capsys.readouterr().out == printable(row["text"]) + "\n"


# ---- readers ----------------------------------------------------------------------------------------------------


def test_fill(tiny, capsys):
    text = "The [MASK] cat sees a [MASK]."
    found = load(tiny.run("bert")).fill([text], count=3)[0]
    (row,) = rows(capsys, "fill", tiny.run("bert"), text, "--count", 3)
    assert [[word["token"] for word in place] for place in row["positions"]] == [[w.token for w in p] for p in found]
    lines = said(capsys, "fill", tiny.run("bert"), text, "--count", 3)
    assert len(lines) == 2 and f"{found[0][0].token} {found[0][0].probability:.1%}" in lines[0]


def test_classify(tiny, capsys, tmp_path):
    run = tiny.run("classify")
    ((best, *_),) = load(run).classify([TEXT])
    assert said(capsys, "classify", run, TEXT) == [f"{best.label}\t{best.probability:.1%}"]
    (row,) = rows(capsys, "classify", run, TEXT)
    assert row["labels"][0]["label"] == best.label
    assert sum(label["probability"] for label in row["labels"]) == pytest.approx(1, abs=1e-4)
    (tmp_path / "in").write_text(f"{TEXT}\nNo mouse.\n")
    lines = said(capsys, "classify", run, "--input", tmp_path / "in")
    assert [line.split("\t")[2] for line in lines] == [TEXT, "No mouse."]
    (pair,) = rows(capsys, "classify", run, TEXT, "--second", "A cat.")
    assert pair["labels"] != row["labels"]


def test_a_table_is_classified_into_a_table(tiny, capsys, tmp_path):
    run, source = tiny.run("classify"), tmp_path / "new.csv"
    source.write_text(f'id;sentence;label\n7;"{TEXT}";red\n8;;blue\n9;No mouse.;red\n')
    found = [best[0] for best in load(run).classify([TEXT, "No mouse."])]
    call("classify", run, "--input", source, "--out", tmp_path / "out.csv")
    assert capsys.readouterr().err.splitlines() == [
        "1 of 3 texts is empty and gets no answer: line 3", f"saved: {tmp_path / 'out.csv'}",
    ]  # fmt: skip
    with (tmp_path / "out.csv").open(newline="") as file:
        table = list(csv.DictReader(file, delimiter=";"))
    assert list(table[0]) == ["id", "sentence", "label", "predicted_label", "probability"]
    assert [row["id"] for row in table] == ["7", "8", "9"] and [row["label"] for row in table] == ["red", "blue", "red"]
    assert [row["predicted_label"] for row in table] == [found[0].label, "", found[1].label]
    assert float(table[2]["probability"]) == pytest.approx(found[1].probability, abs=1e-5)
    call("classify", run, "--input", source, "--out", tmp_path / "out.jsonl")
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert records[0]["predicted_label"] == found[0].label and len(records[0]["labels"]) == 4
    assert records[1] == {"id": "8", "sentence": "", "label": "blue"}
    lines = said(capsys, "classify", run, "--input", source)
    assert lines[1] == "" and lines[2].startswith(found[1].label)
    assert "the text is empty; there is nothing to classify" in fails(capsys, "classify", run, " ")
    assert "name it with --input" in fails(capsys, "classify", run, TEXT, "--out", tmp_path / "x.csv")


def test_the_columns_of_the_training_are_read_again(tiny, capsys, tmp_path):
    rows_ = [f"{i},The {c} one,It is {c}.,{c}" for i in range(10) for c in ("red", "blue")]
    (tmp_path / "train.csv").write_text("\n".join(["n,title,body,kind", *rows_]))
    changes = {"data__train": str(tmp_path / "train.csv"), "data__columns": ("text=title+body", "label=kind")}
    fit(tiny.plan("classify", **changes), tmp_path / "run", quiet=True)
    (tmp_path / "new.csv").write_text("body,text,title\nIt is red.,other,The red one\n")
    (best,) = load(tmp_path / "run").classify(["The red one\nIt is red."])
    (row,) = rows(capsys, "classify", tmp_path / "run", "--input", tmp_path / "new.csv")
    assert row["text"] == "The red one\nIt is red."
    assert row["labels"][0]["probability"] == pytest.approx(best[0].probability, abs=1e-5)
    (scores,) = rows(capsys, "eval", tmp_path / "run", "--data.test", tmp_path / "train.csv")
    assert scores["examples"] == 20
    words = ["classify", tmp_path / "run", "--input", tmp_path / "new.csv"]
    assert rows(capsys, *words, "--columns", "text=body")[0]["text"] == "It is red."
    assert rows(capsys, *words, "--data.columns", "text=text,label=kind")[0]["text"] == "other"
    assert "no column 'boddy', only 'body', 'text', 'title'; did you" in fails(
        capsys, *words, "--columns", "text=boddy"
    )
    assert "an input has no 'words'; known: label, second, text" in fails(capsys, *words, "--columns", "words=1")
    for header, wanted in (("words,when,id", "title+body"), ("body,when,id", "title")):
        (tmp_path / "new.csv").write_text(f"{header}\nIt is red.,now,1\nIt is blue.,then,2\n")
        found = ", ".join(map(repr, header.split(",")))
        line = f"no column {wanted!r}, as in training, only {found}; name the one to read: --columns text={header[:5]}"
        assert line.removesuffix(",") in fails(capsys, *words)


def test_second_texts_of_a_file_are_read_for_a_file(tiny, capsys, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"text": TEXT, "second": second}) + "\n" for second in ("A cat.", "No dog.")))
    call("classify", tiny.run("classify"), "--input", pairs, "--out", tmp_path / "out.jsonl")
    written = [json.loads(line)["labels"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    wanted = [row["labels"] for row in rows(capsys, "classify", tiny.run("classify"), "--input", pairs)]
    assert written == wanted and wanted[0] != wanted[1]


def test_entities_go_to_a_table(tiny, tmp_path):
    (tmp_path / "in.txt").write_text(f"{TEXT}\nNo mouse.\n")
    call("tag", tiny.run("tag"), "--input", tmp_path / "in.txt", "--out", tmp_path / "out.tsv")
    with (tmp_path / "out.tsv").open(newline="") as file:
        first, _ = csv.DictReader(file, delimiter="\t")
    found = load(tiny.run("tag")).tag([TEXT])[0]
    assert first["text"] == TEXT and [row["start"] for row in json.loads(first["entities"])] == [e.start for e in found]


def test_tag(tiny, capsys):
    run = tiny.run("tag")
    found = load(run).tag([TEXT])[0]
    (row,) = rows(capsys, "tag", run, TEXT)
    assert [(e["start"], e["end"], e["label"]) for e in row["entities"]] == [(e.start, e.end, e.label) for e in found]
    assert all(TEXT[e["start"] : e["end"]] == e["text"] for e in row["entities"])
    lines = said(capsys, "tag", run, TEXT)
    assert lines == ([f"{e.label}\t{e.text}\t{e.start}-{e.end}\t{e.score:.1%}" for e in found] or ["(none)"])


def test_answer(tiny, capsys, tmp_path):
    run, question = tiny.run("answer"), "What is red?"
    (found,) = load(run).answer([question], [TEXT])
    (row,) = rows(capsys, "answer", run, question, "--passage", TEXT)
    assert (row["question"], row["text"], row["start"]) == (question, found.text, found.start)
    (tmp_path / "p.txt").write_text(TEXT)
    (line,) = said(capsys, "answer", run, question, "--in", tmp_path / "p.txt")
    assert line.startswith("not answerable" if found.text is None else f"{found.text}\t{found.start}-{found.end}")
    assert line.endswith(f"{found.score:.1%}")


def test_embed_and_search(tiny, capsys, tmp_path):
    run, corpus = tiny.run("embed"), ["A red cat.", "No mouse.", "The blue horse sees a horse.", "A bird."]
    wanted = load(run).embed([TEXT, "A bird."])
    lines = said(capsys, "embed", run, TEXT, "A bird.")
    assert np.allclose([[float(word) for word in line.split()] for line in lines], wanted, atol=1e-6)
    assert [row["text"] for row in rows(capsys, "embed", run, TEXT, "A bird.")] == [TEXT, "A bird."]
    assert said(capsys, "embed", run, TEXT, "A bird.", "--out", tmp_path / "v.npy") == []
    assert np.allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    (tmp_path / "long.txt").write_text(f"A bird.\n{TEXT * 100}\n")
    for out in ([], ["--out", tmp_path / "v.npy"]):
        capsys.readouterr()
        call("embed", run, "--input", tmp_path / "long.txt", *out)
        context = load(run).context
        assert f"cut at {context:,} tokens, the model's context: 1 of 2 texts" in capsys.readouterr().err
    (tmp_path / "corpus.txt").write_text("\n".join(corpus))
    found = load(run).search("a cat", corpus, count=3)
    lines = said(capsys, "embed", run, "--search", "a cat", "--in", tmp_path / "corpus.txt", "--count", 3)
    assert lines == [f"{hit.score:.4f}\t{hit.place + 1}\t{hit.text}" for hit in found]
    hits = rows(capsys, "embed", run, "--search", "a cat", "--in", tmp_path / "corpus.txt", "--count", 3)
    assert [hit["line"] for hit in hits] == [hit.place + 1 for hit in found]


def test_every_encoder_embeds(tiny, capsys):
    for name in ("bert", "classify", "tag", "answer"):
        assert len(said(capsys, "embed", tiny.run(name), TEXT)[0].split()) == 16


# ---- fine-tuning, scores, looking, converting -------------------------------------------------------------------


def test_generate_by_beams(tiny, tmp_path, capsys):
    run = tiny.run("lm")
    few = ("--max-new-tokens", 6)
    (best,) = rows(capsys, "generate", run, "The red", "--beam", 3, "--n-best", 3, *few)
    scores = [text["score"] for text in best["texts"]]
    assert len(scores) == len({text["text"] for text in best["texts"]}) == 3
    assert best["text"] == best["texts"][0]["text"] and scores == sorted(scores, reverse=True)
    assert load(run).generate(["The red"], beams=3, max_new_tokens=6) == [best["text"]]
    call("generate", run, "The red", "--beam", 3, *few)
    assert capsys.readouterr().out == "The red" + best["text"] + "\n"
    call("generate", run, "The red", "--beam", 3, "--n-best", 2, *few)
    assert capsys.readouterr().out.split("  ")[1].startswith(best["text"].split("\n")[0].strip()[:1])
    greedy = rows(capsys, "generate", run, "The red", *few)
    assert rows(capsys, "generate", run, "The red", "--beam", 1, *few) == greedy
    assert "beam search is deterministic" in fails(capsys, "generate", run, "a", "--beam", 2, "--temperature", 1)
    assert "beam search is deterministic" in fails(capsys, "generate", run, "a", "--n-best", 2, "--lookup")
    (tmp_path / "in.txt").write_text("The red\nNo\n")
    words = ("--input", tmp_path / "in.txt", "--out", tmp_path / "out.jsonl", "--beam", 3, "--n-best", 2)
    call("generate", run, *words, *few)
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    capsys.readouterr()
    line = fails(capsys, "generate", run, "--input", tmp_path / "in.txt", "--out", tmp_path / "o.txt", "--n-best", 2)
    assert "--n-best needs more than a line; write o.jsonl instead" in line and not (tmp_path / "o.txt.part").exists()
    assert first["answer"] == best["text"] and len(first["answers"]) == 2
    (t5,) = rows(capsys, "generate", tiny.run("t5"), "colour: red cat", "--beam", 3, "--n-best", 2, *few)
    assert len(t5["texts"]) == 2
    (lstm,) = rows(capsys, "generate", tiny.run("lstm"), "The red", "--beam", 2, *few)
    assert lstm["text"]


def test_finetune_reports_and_goes_on(tiny, adapter, tmp_path, capsys):
    assert (adapter / "adapter.safetensors").exists() and not (adapter / "model.safetensors").exists()
    words = ["finetune", tiny.run("bert"), "--task", "classify", "--tune", "lora", "--out", adapter, "--resume"]
    shown = said(capsys, *words, "--quiet")
    assert any(line.startswith("on held-out data: accuracy") for line in shown)
    assert any(line.startswith(f"  regard classify {adapter}") for line in shown)
    (row,) = rows(capsys, *words, "--quiet")
    assert row["steps"] == 4 and {"accuracy", "macro_f1", "examples"} <= row.keys()


@pytest.mark.parametrize("task", ["tag", "answer", "embed", "instruct"])
def test_finetune_every_task(task, tiny, tmp_path, capsys):
    base = tiny.run("lm" if task == "instruct" else "bert")
    given = options(tiny.files[task] | FEW)
    (row,) = rows(capsys, "finetune", base, "--task", task, "--out", tmp_path / "run", "--quiet", *given)
    assert row["steps"] == 4 and row["examples"] == 8


def test_eval_of_other_data_and_its_outputs(tiny, tmp_path, capsys):
    (tmp_path / "test.tsv").write_text("A red cat.\tred\nA blue dog.\tblue\n")
    given = ["--data.train", tiny.files["classify"]["data.train"], "--data.test", tmp_path / "test.tsv"]
    (row,) = rows(capsys, "eval", tiny.run("classify"), *given, "--out", tmp_path / "said.txt")
    assert row["examples"] == 2
    wanted = [best[0].label for best in load(tiny.run("classify")).classify(["A red cat.", "A blue dog."])]
    assert (tmp_path / "said.txt").read_text().split() == wanted
    (tmp_path / "text.txt").write_text("The red cat sees. " * 30)
    (row,) = rows(capsys, "eval", tiny.run("lm"), "--data.text", tmp_path / "text.txt")
    assert row["bytes"] == 18 * 30 and row["xz"] < 3
    assert said(capsys, "eval", tiny.run("tag"))[0].startswith("precision ")


def test_eval_few_shot(tiny, capsys):
    words = ["eval", tiny.run("lm"), "--few-shot", "1", "--limit", "2", *options(tiny.files["classify"])]
    (row,) = rows(capsys, *words)
    assert row["shots"] == 1 and row["examples"] == 2 and "accuracy" in row
    assert said(capsys, *words)[0].endswith("(2 examples)")


def test_look_at_a_text_and_at_a_word(tiny, tmp_path, capsys):
    for name, texts in (("lm", [TEXT]), ("bert", [TEXT, "A cat."])):
        for view in ("heads", "lines"):
            call("look", tiny.run(name), *texts, "--view", view, "--out", tmp_path / "look.png")
            assert (tmp_path / "look.png").stat().st_size > 5000
            (tmp_path / "look.png").unlink()
    word = ["look", tiny.run("bert"), "--word", "cat", "The red cat.", "No cat is blue."]
    capsys.readouterr()
    (row,) = rows(capsys, *word)
    (pair,) = row["pairs"]
    assert pair["static"] == pytest.approx(1) and pair["contextual"] < 0.9999
    assert any("static" in line for line in said(capsys, *word, "--out", tmp_path / "word.png"))
    assert (tmp_path / "word.png").stat().st_size > 5000


def test_convert_writes_the_merged_model_for_transformers(adapter, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    call("convert", adapter, tmp_path / "hf")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    ours = load(adapter)
    framed = ours.frame([TEXT])[0]
    with torch.no_grad():
        logits = theirs(input_ids=torch.tensor([framed.ids]), token_type_ids=torch.tensor([framed.types])).logits[0]
    torch.testing.assert_close(logits, ours.logits([framed])[0], atol=1e-5, rtol=0)
    names = [theirs.config.id2label[i] for i in range(4)]
    assert names == list(ours.model.config.labels)
    assert load(tmp_path / "hf").classify([TEXT])[0][0].label == ours.classify([TEXT])[0][0].label
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "bert"


def test_compare_by_time(tiny, tmp_path, capsys):
    words = ["compare", tiny.run("lm"), tiny.run("gru"), "--by", "time", "--limit", 100]
    (row,) = rows(capsys, *words, "--out", tmp_path / "race.png")
    assert list(row["runs"]) == ["lm", "gru"] and (tmp_path / "race.png").stat().st_size > 5000
    count = sum(p.numel() for p in load(tiny.run("gru")).model.parameters())
    assert row["runs"]["gru"]["parameters"] == count and row["runs"]["gru"]["bytes"] == 100
    assert any(line.startswith("xz") for line in said(capsys, *words))


def test_parts_grow_and_are_the_whole():
    assert list(parts(3, at_once=False)) == [slice(0, 8)]
    assert list(parts(50, at_once=False)) == [slice(0, 8), slice(8, 24), slice(24, 56)]
    assert list(parts(50, at_once=True)) == [slice(0, 50)]
    whole = list(range(3000))
    cut = [whole[part] for part in parts(3000, at_once=False)]
    assert sum(cut, []) == whole and max(map(len, cut)) == 256


def test_many_texts_are_answered_in_order_part_by_part(tiny, tmp_path, capsys):
    run, texts = tiny.run("classify"), [f"The {colour} cat {i}." for i in range(10) for colour in ("red", "blue")]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    shown = rows(capsys, "classify", run, "--input", tmp_path / "in.txt")
    assert [row["text"] for row in shown] == texts
    (alone,) = rows(capsys, "classify", run, texts[13])
    assert alone["labels"][0]["label"] == shown[13]["labels"][0]["label"]
    holes = ["a [MASK] b"] * 12 + ["no hole"]
    with pytest.raises(SystemExit):
        call("fill", tiny.run("bert"), *holes)
    captured = capsys.readouterr()
    assert "text 13 has no [MASK]" in captured.err and captured.out, "what is ready is printed"
    prompts = [f"The {word}" for word in ("red", "green", "blue")]
    several = rows(capsys, "generate", tiny.run("lm"), *prompts, "--max-new-tokens", "5")
    assert [row["prompt"] for row in several] == prompts
    (single,) = rows(capsys, "generate", tiny.run("lm"), prompts[1], "--max-new-tokens", "5")
    assert single == several[1]
