"""Models that start from trained weights: all of them, the head, or low-rank detours; and what is kept of it."""

import inspect
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from regard.hub import load_model
from regard.hub.adapter import ADAPTER
from regard.models.bert import Bert
from regard.recipes import Recipe, fit, recipe
from regard.runs.fit import prepare
from regard.tasks import load
from regard.train import checkpoint
from regard.train import loop as loop_module
from regard.train.progress import Line
from tests.recipes.test_journeys import losses

TEXTS = ["The red cat sees a cat in May.", "No mouse is blue."]
FEW = {"train.steps": 6, "train.warmup": 2, "train.lr": 1e-2, "train.eval_every": 3, "train.save_every": 3}


def tuned(tiny, task, how, **changes):
    base = "lm" if task == "instruct" else "bert"
    given = {"data.base": str(tiny.run(base)), "data.tune": how, "data.probe": 0}
    given |= {"data.rank": 2} if how == "lora" else {}
    return recipe(task, tiny.files[task] | FEW | given | {k.replace("__", "."): v for k, v in changes.items()})


def job_of(plan, out):
    return prepare(plan.data, plan, out, False, Line(quiet=True))


def outputs(loaded, task):
    if task == "instruct":
        return loaded.model(torch.tensor([loaded.encode(TEXTS[0])]))
    if task == "embed":
        return loaded.embed(TEXTS)
    return torch.cat([rows.flatten() for rows in loaded.logits(loaded.frame(TEXTS))])


@pytest.mark.parametrize("how", ["all", "head", "lora"])
def test_what_is_trained_what_is_kept_and_that_it_loads(how, tiny, tmp_path):
    plan = tuned(tiny, "classify", how)
    job = job_of(plan, tmp_path)
    torch.manual_seed(plan.train.seed)
    before = job.build(job.recipe)
    frozen = {n: p.detach().clone() for n, p in before.named_parameters() if not p.requires_grad}
    fit(plan, tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / ADAPTER).exists() == (how != "all")
    assert (tmp_path / "run" / "model.safetensors").exists() == (how == "all")
    newest = checkpoint.saved(tmp_path / "run" / "checkpoints")[-1]
    stored = load_file(newest / "model.safetensors")
    assert set(stored) == {n for n, p in before.named_parameters() if p.requires_grad}, "checkpoints hold no more"
    loaded = load(tmp_path / "run")
    theirs = dict(loaded.model.named_parameters())
    same = [n for n in frozen if "query" not in n and "key_value" not in n]
    assert all(torch.equal(frozen[n], theirs[n]) for n in same) and bool(same) == (how != "all")
    moved = [n for n, p in before.named_parameters() if n in theirs and not torch.equal(p, theirs[n])]
    parts = {"head": {"head", "pooler"}, "lora": {"head", "pooler", "encoder"}}
    assert {name.split(".")[0] for name in moved} == parts.get(how, {"head", "pooler", "encoder", "embedding"})
    if how == "lora":  # the detours were merged into these
        base = dict(load_model(tiny.run("bert")).named_parameters())
        changed = [n for n in base if n.startswith("encoder.") and not torch.equal(base[n], theirs[n])]
        assert changed and all("attention.query.weight" in n or "attention.key_value.weight" in n for n in changed)


@pytest.mark.parametrize("task", ["tag", "answer", "embed", "instruct"])
@pytest.mark.parametrize("how", ["all", "lora"])
def test_every_task_from_trained_weights(task, how, tiny, tmp_path):
    fit(tuned(tiny, task, how, train__steps=24, train__lr=3e-3), tmp_path / "run", quiet=True)
    seen = list(losses(tmp_path / "run").values())
    assert len(seen) == 24 and sum(seen[-8:]) < sum(seen[:8])  # batches differ, so single steps say little
    assert torch.isfinite(outputs(load(tmp_path / "run"), task)).all()
    assert load(tmp_path / "run").tokenizer.encode(TEXTS[0]) == load(
        tiny.run("bert" if task != "instruct" else "lm")
    ).tokenizer.encode(TEXTS[0])


def test_only_detours_and_head_get_gradients(tiny, tmp_path):
    plan = tuned(tiny, "tag", "lora")
    job = job_of(plan, tmp_path)
    model = job.build(job.recipe).train()
    _, _, batch = next(job.stream.batches())
    loss, _ = job.objective(model, batch)
    loss.backward()
    for name, parameter in model.named_parameters():
        wanted = name.startswith("head.") or name.endswith((".narrow", ".wide"))
        assert (parameter.grad is not None) == wanted == parameter.requires_grad, name


@pytest.mark.parametrize("how", ["lora", "head"])
def test_a_broken_run_goes_on_as_if_unbroken(how, tiny, tmp_path, monkeypatch):
    plan, steps = tuned(tiny, "classify", how, model__dropout=0.1), iter(range(100))
    fit(plan, tmp_path / "whole", quiet=True)

    def dies(batches):
        if inspect.isgenerator(batches) and next(steps) == 4:  # type checks call `next` too
            raise RuntimeError("the power went out")
        return next(batches)

    monkeypatch.setattr(loop_module, "next", dies, raising=False)
    with pytest.raises(RuntimeError, match="power"):
        fit(plan, tmp_path / "broken", quiet=True)
    monkeypatch.undo()
    fit(plan, tmp_path / "broken", resume=True, quiet=True)
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")
    one, two = (outputs(load(tmp_path / name), "classify") for name in ("whole", "broken"))
    assert torch.equal(one, two)


def test_the_published_weights_are_those_of_the_best_validation(tiny, tmp_path):
    """What `load` gives is what training saw at its best validation."""
    plan = tuned(tiny, "classify", "lora", model__dropout=0.0, data__refit=0, train__select="loss")
    seen = []
    real = loop_module.evaluate

    def spy(model, batches, objective, *parallel):
        value = real(model, batches, objective, *parallel)
        loaded = load(tiny.run("bert"))
        ids = loaded.frame(TEXTS)
        with torch.no_grad():
            rows = [model(torch.tensor([f.ids]), torch.tensor([len(f)]), torch.tensor([f.types])) for f in ids]
        seen.append((value, torch.cat([row.flatten() for row in rows])))
        return value

    loop_module.evaluate, kept = spy, real
    try:
        fit(plan, tmp_path / "run", quiet=True)
    finally:
        loop_module.evaluate = kept
    best = min(seen, key=lambda pair: pair[0])[1]
    torch.testing.assert_close(outputs(load(tmp_path / "run"), "classify"), best, atol=1e-5, rtol=1e-4)


def test_a_whole_run_does_not_need_its_base_any_more(tiny, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(tiny.run("bert"), base)
    given = {"data.base": str(base)}
    for how in ("all", "lora"):
        fit(recipe("classify", tiny.files["classify"] | FEW | given | {"data.tune": how}), tmp_path / how, quiet=True)
    shutil.rmtree(base)
    assert load(tmp_path / "all").classify(TEXTS) and Recipe.load(tmp_path / "all" / "recipe.toml").data.base == str(
        base
    )
    with pytest.raises(ValueError, match=f"holds only what was trained on top of {base}, which is missing; restore it"):
        load(tmp_path / "lora")


def test_a_run_on_top_of_a_run(tiny, tmp_path):
    """An adapter can be a base, too; its head stays where the labels are the same."""
    fit(tuned(tiny, "classify", "lora"), tmp_path / "first", quiet=True)
    again = recipe(
        "classify", tiny.files["classify"] | FEW | {"data.base": str(tmp_path / "first"), "data.tune": "head"}
    )
    job = job_of(again, tmp_path)
    first = load(tmp_path / "first")
    assert torch.equal(job.build(job.recipe).head.out.weight, first.model.head.out.weight)
    fit(again, tmp_path / "second", quiet=True)
    assert load(tmp_path / "second").classify(TEXTS)


def test_checkpoints_that_cannot_learn_the_task(tiny, tmp_path):
    lm, bert = str(tiny.run("lm")), str(tiny.run("bert"))
    with pytest.raises(ValueError, match="is a gpt; tag needs an encoder such as bert"):
        recipe("tag", {"data.base": lm})
    with pytest.raises(ValueError, match="is a bert; instructions are for language models"):
        recipe("instruct", {"data.base": bert})
    plan = recipe("embed", tiny.files["embed"] | {"data.base": bert, "data.tune": "head"})
    with pytest.raises(ValueError, match="no head to tune by itself; use --data.tune all or lora"):
        fit(plan, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_is_too_large_for_the_model(tiny, tmp_path):
    from regard.tokens import Tokenizer

    Tokenizer.train(texts=["many many words of all kinds " * 9], kind="char", vocab_size=400).save(
        tmp_path / "small.json"
    )
    small = Tokenizer.load(tmp_path / "small.json")
    path = tmp_path / "large.json"
    small.inner.add_tokens([f"token{i}" for i in range(400)])
    small.save(path)
    plan = recipe(
        "classify", tiny.files["classify"] | {"data.base": str(tiny.run("bert")), "data.tokenizer": str(path)}
    )
    with pytest.raises(ValueError, match=r"large.json has [\d,]+ tokens, the model 3\d\d; use the model's own"):
        job_of(plan, tmp_path)


@pytest.mark.parametrize("name, base", [("classify", "bert"), ("lm", "lm")])
def test_a_tokenizer_with_other_tokens_than_the_base_is_refused(name, base, tiny, tmp_path):
    """Smaller, or of the same size: either would give other meanings to the rows of the embedding."""
    from regard.tokens import Tokenizer

    own, path = load(tiny.run(base)).tokenizer, tmp_path / "other.json"
    start = tiny.files[name] | {"data.base": str(tiny.run(base)), "data.tokenizer": str(path)}
    Tokenizer.train(texts=["many words"], kind="char", vocab_size=400).save(path)
    with pytest.raises(ValueError, match=r"other.json has \d+ tokens, the model 3\d\d; use the model's own: leave out"):
        job_of(recipe(name, start), tmp_path)
    text = own.inner.to_str()
    moved = json.loads(text)
    words = moved["model"]["vocab"]
    last, before = sorted(words, key=words.get)[-2:]
    words[last], words[before] = words[before], words[last]
    path.write_text(json.dumps(moved))
    with pytest.raises(ValueError, match="other.json has other tokens than the model, 3.. as well; use the model's"):
        job_of(recipe(name, start), tmp_path)
    path.write_text(text)
    assert job_of(recipe(name, start), tmp_path).recipe.model.vocab_size == load(tiny.run(base)).model.config.vocab_size


def test_labels_of_a_published_classifier_are_its_own(tiny, tmp_path):
    """A head of `transformers` with the same labels stays; the vocabulary and the positions are the base's."""
    transformers = pytest.importorskip("transformers")
    from tests.parity.peers import encoder
    from tests.recipes.tiny import COLOURS

    names = sorted(COLOURS)
    bert = load(tiny.run("bert"))
    sizes = dict(hidden_size=16, num_attention_heads=2, max_position_embeddings=64, type_vocab_size=2)
    peer = encoder(
        "bert", "ForSequenceClassification", **sizes, vocab_size=len(bert.tokenizer),
        id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)},
    )  # fmt: skip
    transformers.utils.logging.disable_progress_bar()
    peer.save_pretrained(tmp_path / "peer")
    bert.tokenizer.save(tmp_path / "peer")
    plan = recipe("classify", tiny.files["classify"] | {"data.base": str(tmp_path / "peer")})
    job = job_of(plan, tmp_path)
    model = job.build(job.recipe)
    assert isinstance(model, Bert) and torch.equal(model.head.out.weight, peer.classifier.weight)
    assert plan.model.max_len == 64 and job.recipe.model.labels == tuple(names)


def test_an_instruction_begins_as_the_base_begins_its_texts(tiny, tmp_path):
    """Llama's texts begin with <s>: so do the instructions that it learns."""
    from tokenizers.processors import TemplateProcessing

    from regard.recipes.finetune import encode_instructions

    tokenizer = load(tiny.run("lm")).tokenizer
    tokenizer.inner.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", tokenizer.bos)]
    )
    examples = tuned(tiny, "instruct", "all").data.split()[0][:2]
    for pair in encode_instructions(examples, tokenizer=tokenizer, config=None, max_len=60):
        assert pair.source[0] == tokenizer.bos and tokenizer.bos not in pair.source[1:] + pair.target


def test_the_config_names_the_base(tiny, tmp_path):
    fit(tuned(tiny, "tag", "lora"), tmp_path / "run", quiet=True)
    told = json.loads((tmp_path / "run" / "config.json").read_text())
    assert told["adapter"]["tune"] == "lora" and told["adapter"]["rank"] == 2
    assert told["labels"] == ["O", "B-ANIMAL", "I-ANIMAL", "B-PLACE", "I-PLACE"]
