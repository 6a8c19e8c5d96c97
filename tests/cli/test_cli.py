"""The command line as a newcomer types it: results on stdout, mistakes in one line, nothing lost."""

import io
import json
import shutil
import subprocess
import sys

import pytest

import regard
from regard.cli import base, overrides
from regard.cli import regard as group
from regard.tasks import translator
from tests.cli.calling import call, fails
from tests.train.conftest import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was trained a little, through the command line."""
    out = tmp_path_factory.mktemp("runs") / "small"
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(translator, "TEST_EXAMPLES", 60)
    fields = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    call("train", "translate", "--out", str(out), "--quiet", *fields)
    yield out
    monkeypatch.undo()


def test_help_imports_no_torch():
    code = "import sys; sys.argv = ['regard', '--help']\nfrom regard.cli import main\nmain()\n"
    probe = "import atexit, sys; atexit.register(lambda: print(sorted(m for m in sys.modules if '.' not in m)))\n"
    done = subprocess.run([sys.executable, "-c", probe + code], capture_output=True, text=True, check=True)
    assert "Train:" in done.stdout
    for heavy in ("'torch'", "'numpy'", "'matplotlib'", "'tokenizers'"):
        assert heavy not in done.stdout.splitlines()[-1]


def test_public_names():
    assert regard.__all__ == [
        "Attention", "AttentionConfig", "Engine", "LanguageModel", "Recipe", "Sampling", "Task", "Tokenizer",
        "Translation", "Translator", "fit", "load", "look", "masks", "recipe", "register_kernel", "register_modality",
        "register_model", "register_position", "register_recipe", "register_task",
    ]  # fmt: skip
    assert len(regard.__all__) <= 25
    first = {name: getattr(regard, name) for name in regard.__all__}
    assert all(getattr(regard, name) is first[name] for name in first), "a submodule must not take a name's place"


def test_commands_and_options_are_frozen():
    """What users have in their scripts: change this list only on purpose."""
    import click

    def options(command):
        return sorted(o for p in command.params if isinstance(p, click.Option) for o in p.opts)

    assert options(group) == ["--plugin", "--version"]
    found = {}
    for name, command in group.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {sub}".strip(): options(leaf) for sub, leaf in inner.items()}
    assert found == {
        "completion": [],
        "train": ["--config", "--help", "--json", "--no-score", "--out", "--probe", "--quiet", "--resume"],
        "launch": [
            "--claim", "--file", "--gpus", "--hours", "--image", "--job", "--nodes", "--on", "--out", "--processes",
        ],
        "finetune": ["--json", "--no-score", "--out", "--quiet", "--resume", "--task", "--tune"],
        "recipes": ["--json"],
        "eval": [
            "--beam", "--confusion", "--device", "--few-shot", "--json", "--labels", "--length-penalty", "--limit",
            "--lowercase", "--out", "--probe", "--quantize",
        ],
        "compare": ["--beam", "--by", "--device", "--json", "--limit", "--out"],
        "convert": ["--to"],
        "data": ["--json", "--task"],
        "translate": [
            "--actors", "--alignment", "--beam", "--columns", "--data.columns", "--device", "--engine",
            "--input", "--json", "--length-penalty", "--min-p", "--n-best", "--out", "--quantize", "--seed",
            "--temperature", "--top-k", "--top-p",
        ],
        "generate": [
            "--actors", "--beam", "--columns", "--data.columns", "--device", "--draft", "--engine",
            "--input", "--json", "--length-penalty", "--lookup", "--max-new-tokens", "--min-p", "--n-best",
            "--out", "--quantize", "--seed", "--temperature", "--top-k", "--top-p",
        ],
        "fill": [
            "--actors", "--columns", "--count", "--data.columns", "--device", "--engine", "--input",
            "--json", "--out", "--quantize",
        ],
        "nearest": [
            "--actors", "--columns", "--count", "--data.columns", "--device", "--engine", "--input",
            "--json", "--out", "--quantize",
        ],
        "classify": [
            "--actors", "--columns", "--data.columns", "--device", "--engine", "--input", "--json", "--out",
            "--quantize", "--second", "--zero-shot",
        ],
        "predict": [
            "--actors", "--columns", "--data.columns", "--device", "--engine", "--input", "--json", "--out",
            "--quantize",
        ],
        "tag": [
            "--actors", "--columns", "--data.columns", "--device", "--engine", "--input", "--json", "--out",
            "--quantize",
        ],
        "answer": ["--device", "--in", "--json", "--passage", "--quantize"],
        "embed": [
            "--actors", "--columns", "--count", "--data.columns", "--device", "--engine", "--in", "--input",
            "--json", "--out", "--quantize", "--search",
        ],
        "detect": ["--device", "--json", "--out", "--quantize", "--threshold"],
        "complete": ["--count", "--device", "--out", "--quantize", "--rows", "--seed", "--temperature"],
        "caption": [
            "--beam", "--device", "--json", "--length-penalty", "--look", "--min-p", "--n-best", "--quantize", "--seed",
            "--temperature", "--top-k", "--top-p",
        ],
        "transcribe": [
            "--beam", "--device", "--json", "--language", "--no-context", "--out", "--prompt", "--quantize", "--srt",
            "--task", "--temperature", "--timestamps", "--vtt",
        ],
        "forecast": ["--device", "--horizon", "--json", "--out", "--quantize", "--start"],
        "serve": [
            "--allow-host", "--allow-origin", "--api-key", "--device", "--grace", "--host", "--max-batch",
            "--max-body-mb", "--memory-gb", "--models-memory", "--port", "--preload", "--quantize", "--queue",
            "--threads", "--timeout",
        ],
        "tokenizer train": ["--kind", "--lowercase", "--out", "--vocab-size"],
        "tokenizer encode": ["--json"],
        "tokenizer decode": [],
        "tokenizer trace": ["--json", "--tokenizer"],
        "tokenizer compare": ["--corpus", "--json", "--vocab-size"],
        "sample": ["--count", "--json", "--out"],
        "cost": ["--batch", "--json", "--length", "--source-length", "--training"],
        "prune": ["--heads", "--json", "--out", "--quiet", "--random"],
        "draw": ["--out"],
        "attend": ["--digits", "--json", "--mask", "--out", "--query", "--temperature"],
        "look": [
            "--against", "--at", "--beams", "--data", "--device", "--head", "--json", "--kind", "--layer", "--out",
            "--quantize", "--target", "--token", "--view", "--word",
        ],
        "latent": [
            "--active", "--data", "--decode", "--device", "--dictionary", "--from", "--json", "--layer", "--limit",
            "--out", "--project", "--reach", "--to", "--walk",
        ],
        "bench attention": [
            "--batch", "--causal", "--head-dim", "--heads", "--json", "--kernels", "--layer", "--lengths",
            "--max-seconds", "--out", "--pass", "--quiet", "--repeats",
        ],
        "bench architectures": [
            "--dim", "--json", "--lengths", "--max-seconds", "--out", "--quiet", "--radius", "--repeats", "--width",
        ],
        "bench gradient": [
            "--depth", "--dim", "--gain", "--json", "--length", "--models", "--out", "--quiet", "--seeds",
        ],
        "bench toys": ["--examples", "--json", "--models", "--out", "--quiet", "--runs"],
        "bench quality": ["--json", "--kernels", "--model", "--out", "--quiet", "--steps"],
        "bench error": ["--draws", "--json", "--out"],
        "bench quantize": ["--data", "--json", "--limit", "--quiet"],
        "bench decode": ["--batch", "--beam", "--json", "--new", "--prompt", "--quantize", "--quiet", "--rounds"],
        "bench images": [
            "--by", "--flops", "--json", "--minutes", "--models", "--out", "--quiet", "--runs", "--seeds", "--steps",
            "--values",
        ],
        "bench area": [
            "--batch", "--depth", "--dim", "--json", "--max-seconds", "--out", "--patch", "--quiet", "--repeats",
            "--sides", "--window",
        ],
        "bench receptive": ["--image", "--inputs", "--json", "--length", "--models", "--out", "--quiet"],
        "bench long": [
            "--json", "--max-seconds", "--memory", "--models", "--out", "--quiet", "--segment", "--text", "--tokens",
        ],
        "bench precision": ["--depth", "--dim", "--json", "--out", "--quiet", "--steps"],
        "why": ["--json", "--out", "--quiet", "--same", "--seeds", "--steps"],
        "cheaper": ["--by", "--cost", "--json", "--limit", "--minutes", "--out", "--quiet", "--save"],
        "choose": ["--base", "--json", "--minutes", "--out", "--quiet", "--seeds"],
        "doctor": ["--causal", "--json", "--kernel", "--out", "--speed"],
        "claims": ["--json", "--lecture", "--out", "--run", "--slow", "--topics", "--verdict"],
    }  # fmt: skip


def test_train_reports_scores_samples_picture_and_next_steps(run, capsys):
    call("train", "translate", "--out", run, "--resume", "--quiet")
    shown = capsys.readouterr().out
    for piece in ("exact match", "BLEU", "nrefs:1|case:mixed", "twenty-five\n    →", "Try next:"):
        assert piece in shown
    assert (run / "alignment.png").stat().st_size > 5000


def test_translate_text_file_and_stdin_agree(run, tmp_path, capsys, monkeypatch):
    texts = ["twenty-five", "three euros"]
    call("translate", run, *texts)
    direct = capsys.readouterr().out
    (tmp_path / "in.txt").write_text("".join(text + "\n" for text in texts))
    call("translate", run, "--input", tmp_path / "in.txt")
    assert capsys.readouterr().out == direct
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    call("translate", run)
    assert capsys.readouterr().out == direct
    assert len(direct.splitlines()) == 2


def test_translate_json_n_best_and_sampling(run, capsys):
    call("translate", run, "twenty-five", "--json", "--n-best", "3", "--beam", "5")
    row = json.loads(capsys.readouterr().out)
    scores = [found["score"] for found in row["translations"]]
    assert row["source"] == "twenty-five" and len(scores) == 3 and scores == sorted(scores, reverse=True)
    drawn = []
    for seed in (1, 1, 2):
        call("translate", run, "twenty-five", "--temperature", "2", "--seed", seed)
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1] != drawn[2]


def test_eval_prints_the_three_scores(run, tmp_path, capsys):
    call("eval", run, "--limit", "20", "--json")
    scores = json.loads(capsys.readouterr().out)
    assert {"bleu", "chrf", "exact_match", "bleu_signature"} <= scores.keys() and scores["sentences"] == 20
    (tmp_path / "a").write_text("two\nthree\n")
    (tmp_path / "b").write_text("zwei\ndrei\n")
    call("eval", run, "--data.source", tmp_path / "a", "--data.target", tmp_path / "b")
    assert "2 sentences" in capsys.readouterr().out


def test_compare_draws_and_prints(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    call("compare", run, copy, "--limit", "50", "--by", "length", "--out", tmp_path / "by.png", "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["runs"]["small"] == result["runs"]["copy"]
    assert sum(row["sentences"] for row in result["runs"]["small"]) == 50
    assert (tmp_path / "by.png").stat().st_size > 5000


def test_tokenizer_verbs(tmp_path, capsys):
    (tmp_path / "text").write_text("the cat and the hat and the mat\n" * 50)
    call("tokenizer", "train", tmp_path / "text", "--vocab-size", "270", "--out", tmp_path / "tok.json")
    capsys.readouterr()
    call("tokenizer", "encode", tmp_path / "tok.json", "the bat")
    ids = capsys.readouterr().out.split()
    call("tokenizer", "decode", tmp_path / "tok.json", *ids)
    assert capsys.readouterr().out == "the bat\n"
    call("tokenizer", "trace", "the cat and the hat", "--tokenizer", tmp_path / "tok.json")
    assert "the" in capsys.readouterr().out
    call("tokenizer", "trace", "low lower lowest")
    assert "low" in capsys.readouterr().out


def test_cost_of_a_preset_and_of_a_run(run, tmp_path, capsys):
    call("cost", "base", "--vocab-size", "37000", "--tie", "none", "--head-bias", "--final-norm", "--json")
    assert json.loads(capsys.readouterr().out)["parameters"]["total"] == 101_009_544
    call("cost", run, "--batch", "2", "--length", "16")
    shown = capsys.readouterr().out
    shutil.copy(run / "config.json", tmp_path)  # as of a checkpoint from elsewhere: there is no recipe
    call("cost", tmp_path, "--batch", "2", "--length", "16")
    assert "KiB" in shown and capsys.readouterr().out == shown
    assert f"no such directory: {tmp_path}/none; give the directory" in fails(capsys, "cost", tmp_path / "none")


def test_look_draw_and_recipes(run, tmp_path, capsys):
    for kind in ("cross", "encoder", "decoder"):
        call("look", run, "twenty-five", "--kind", kind, "--out", tmp_path / f"{kind}.png")
        assert (tmp_path / f"{kind}.png").stat().st_size > 5000
    call("look", run, "twenty-five", "--view", "lines", "--out", tmp_path / "lines.png")
    assert (tmp_path / "lines.png").stat().st_size > 5000
    call("draw", "training", "--runs", run, "--out", tmp_path / "training.png")
    assert (tmp_path / "training.png").stat().st_size > 5000
    call("draw", "masks", "--out", tmp_path / "masks.svg")
    assert (tmp_path / "masks.svg").stat().st_size > 5000
    call("recipes")
    shown = capsys.readouterr().out
    assert "regard train translate" in shown and "answer, classify, embed, instruct, tag\n  " in shown
    call("recipes", "--json")
    assert {"translate", "lm", "bert", "t5", "spans", "classify"} <= json.loads(capsys.readouterr().out).keys()


def test_every_field_is_documented_in_help(capsys):
    call("train", "translate", "--help")
    shown = capsys.readouterr().out
    for option in ("--model.norm-place", "--data.valid-source", "--train.smoothing", "presets: tiny, small"):
        assert option in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "translat"], "unknown recipe 'translat'; did you mean 'translate'?"),
        (["train", "translate", "--train.step", "3"], "unknown key 'train.step'; did you mean 'train.steps'?"),
        (["train", "translate", "--train.steps", "many"], "steps takes a whole number, got 'many'"),
        (["train", "translate", "--model", "transfomer"], "did you mean 'transformer'?"),
        (["train", "translate", "--model.preset", "tinny"], "did you mean 'tiny'?"),
        (["train", "translate", "--model.heads", "3"], "heads=3 does not divide dim=128; use 2 or set head_dim"),
        (
            ["train", "translate", "--model.kernel", "ful", "--data.epoch-size", "9"],
            "unknown kernel 'ful'; did you mean 'full'?",
        ),
        (["train", "translate", "--data.source", "none.en", "--data.target", "none.de"], "none.en: no such file"),
        (["train", "translate", "--data.source", "a"], "source and target go together"),
        (["train", "translate", "--config", "none.toml"], "no such file: none.toml"),
        (["train", "translate", "--resume"], "holds no run to resume"),
        (["translate", "nowhere", "hi"], "no such directory: nowhere"),
        (["eval", "nowhere"], "no such directory: nowhere"),
        (["cost", "bse"], "'bse' is no preset, run, checkpoint or .toml file; did you mean 'base'?"),
        (["tokenizer", "train", "none.txt", "--out", "tok.json"], "none.txt: no such file"),
        (["draw", "maskes"], "did you mean 'masks'?"),
    ],
)
def test_mistakes_are_one_line_with_the_cure(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, *words)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate"], "missing argument 'RUN'; see regard translate --help"),
        (["trnslate"], "no such command 'trnslate' (did you mean 'translate'?); see regard --help"),
        (
            ["fill", "a", "--quantise", "int8"],
            "no such option '--quantise' (did you mean '--quantize'?); see regard fill --help",
        ),
        (["bench", "decode", "--new"], "option '--new' requires an argument; see regard bench decode --help"),
        (["tokenizer", "train", "a"], "missing option '--out'; see regard tokenizer train --help"),
    ],
)
def test_usage_errors_are_one_line_with_the_command_whose_help_to_read(words, message, capsys):
    assert fails(capsys, *words) == f"regard: error: {message}"


def test_commands_to_try_next_begin_as_the_user_can_type_them(monkeypatch):
    def program(*words):
        context = group.make_context("regard", [*words, "recipes"], resilient_parsing=False)
        with context.scope(cleanup=False):
            return base.program()

    monkeypatch.setattr(sys, "argv", [".venv/bin/regard"])
    monkeypatch.setenv("PATH", "")
    assert program() == ".venv/bin/regard"
    assert program("--plugin", "json", "--plugin", "re") == ".venv/bin/regard --plugin json --plugin re"
    monkeypatch.setenv("REGARD_PLUGINS", "json")  # holds for the whole shell
    assert program() == ".venv/bin/regard"
    monkeypatch.setattr(base.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert program() == "regard"


def test_own_pairs_that_are_bad(capsys, tmp_path):
    def train(left, right):
        (tmp_path / "a").write_bytes(left)
        (tmp_path / "b").write_bytes(right)
        words = ["--data.source", tmp_path / "a", "--data.target", tmp_path / "b", "--out", tmp_path / "run"]
        return fails(capsys, "train", "translate", *words)

    assert "a has 2 lines" in train(b"one\ntwo\n", b"eins\n")
    assert "a: the file is empty" in train(b"", b"eins\n")
    assert "line 2: not UTF-8" in train(b"one\n\xff\xfe\n", b"eins\nzwei\n")
    long = ("wort " * 50_000).encode()
    assert "no pair is shorter than max_len=256" in train(long + b"\n", long + b"\n")


def test_a_line_of_50000_tokens_is_refused_or_left_out(run, capsys, tmp_path):
    assert "more than 2,048; split it into sentences" in fails(capsys, "translate", run, "wort " * 50_000)
    long, rest = "wort " * 50_000 + "\tx\n", "".join(f"number {i}\tZahl {i}\n" for i in range(50))
    (tmp_path / "p.tsv").write_text(long + "\tempty\n" + rest + long)
    words = ["--data.pairs", tmp_path / "p.tsv", "--out", tmp_path / "run", "--train.steps", "2"]
    sizes = ["--model.dim", "8", "--model.heads", "2", "--model.ffn-dim", "8", "--data.vocab-size", "300", "--json"]
    call("train", "translate", *words, *sizes, "--train.warmup", "1")
    assert "left out 2 of" in capsys.readouterr().err


def test_a_handful_of_pairs_is_enough_to_try(capsys, tmp_path):
    (tmp_path / "p.tsv").write_text('one\teins\ntwo "and" a half\tzweieinhalb\nthree\tdrei\n')
    words = ["--data.pairs", tmp_path / "p.tsv", "--out", tmp_path / "run", "--train.steps", "2", "--train.warmup", "1"]
    call("train", "translate", *words, "--model.dim", "8", "--model.heads", "2", "--data.vocab-size", "300", "--quiet")
    assert "Try next:" in capsys.readouterr().out


def test_output_lines_up_with_input(run, capsys, tmp_path):
    (tmp_path / "in").write_text("two\n\nthree\u2028four\n\n")
    call("translate", run, "--input", tmp_path / "in")
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 5 and lines[1] == lines[3] == lines[4] == ""


def test_broken_checkpoints(run, capsys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "model.safetensors" in fails(capsys, "translate", copy, "hi")
    for saved in (copy / "checkpoints").iterdir():
        (saved / "optimizer.safetensors").write_bytes(b"nonsense")
    assert "checkpoints is sound; restore one from a copy" in fails(
        capsys, "train", "translate", "--out", copy, "--resume", "--quiet", "--train.steps", "40"
    )
    (copy / "config.json").write_text("{")
    assert "config.json" in fails(capsys, "translate", copy, "hi")
    weights.rename(copy / "pytorch_model.bin")
    (copy / "config.json").write_bytes((run / "config.json").read_bytes())
    assert "pytorch_model.bin" in fails(capsys, "translate", copy, "hi")


def test_python_runs_the_package_as_a_command():
    done = subprocess.run([sys.executable, "-m", "regard.cli", "recipes"], capture_output=True, text=True, check=True)
    assert "regard train translate" in done.stdout


def test_overrides():
    words = ["--train.steps", "3", "--data.lowercase", "--model.norm-place=post", "--data.text", "a", "b", "--x", "-1"]
    assert overrides(words) == {
        "train.steps": "3", "data.lowercase": "true", "model.norm_place": "post", "data.text": ["a", "b"], "x": "-1",
    }  # fmt: skip
    with pytest.raises(ValueError, match="'extra' is not an option"):
        overrides(["extra", "--a", "1"])
    with pytest.raises(ValueError, match=r"train.steps takes a whole number, got \['1', 'extra'\]"):
        regard.recipe("translate", overrides(["--train.steps", "1", "extra"]))


def test_help_of_cost_says_how_fields_are_set(capsys):
    call("cost", "--help")
    shown = capsys.readouterr().out
    assert "--image SIDE" in shown and "regard cost vit:vit-b/16 --image 384" in shown
    totals = []
    for side in ("224", "384"):
        call("cost", "vit:vit-b/16", "--image", side, "--json")
        totals.append(json.loads(capsys.readouterr().out))
    assert totals[1]["length"] == 577 > totals[0]["length"] == 197


def test_a_plugin_is_a_file_or_a_module(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "own_names_by_file.py").write_text("LOADED = True\n")
    (folder / "json.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert base.import_own("elsewhere/own_names_by_file.py").LOADED
    assert base.import_own("own_names_by_file").LOADED  # its folder is searched from then on
    for name, message in [
        ("elsewhere/missing.py", "no file 'elsewhere/missing.py' in "),
        ("elsewhere/own_names_by_file", "--plugin takes path/mine.py or the name of a module"),
        ("elsewhere/json.py", "'elsewhere/json.py' has the name of another module, json; rename the file"),
        ("not_there_at_all", "no module 'not_there_at_all' in "),
    ]:
        assert message in fails(capsys, "--plugin", name, "recipes")
