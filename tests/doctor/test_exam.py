"""The doctor on modules of a user's own: seeded faults are named; their healthy twins and others' models pass."""

import json
import textwrap
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.doctor.exam import examine_module
from regard.doctor.exam.subject import answer_in
from regard.registry import models
from tests.cli.calling import call, fails
from tests.doctor.broken import FAULTS, VOCAB, Encoder, Mixer, Writer
from tests.doctor.test_kernels import here  # noqa: F401  a directory of the user's
from tests.laws.cases import CASES, example, make

NAMES = [name for name, *_ in FAULTS]


def causes(made, **how):
    """What it finds; every check must have come to an end."""
    found = examine_module(made, "it", **how)
    assert not [check for check in found.outcomes if "raised" in check.found]
    return [finding.cause for finding in found.findings]


def verdicts(made, **how):
    return {check.law: check for check in examine_module(made, "it", **how).outcomes}


# ---- seeded faults --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cause", "broken", "healthy"), [fault[1:] for fault in FAULTS], ids=NAMES)
def test_a_fault_is_named_and_its_twin_passes(cause, broken, healthy):
    assert cause in causes(broken(0))[:2]
    assert causes(healthy(0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("cause", "broken", "healthy"), [fault[1:] for fault in FAULTS], ids=NAMES)
def test_so_it_is_at_other_seeds(cause, broken, healthy, seed):
    assert cause in causes(broken(seed))[:2]
    assert causes(healthy(seed)) == []


def told(made, cause, **how):
    return next(finding for finding in examine_module(made, "it", **how).findings if finding.cause == cause)


class Masked(Writer):
    """With another rule for who may see whom."""

    def __init__(self, allowed, hide=float("-inf"), wrong_view=False):
        super().__init__()
        self.allowed, self.hide, self.wrong_view = allowed, hide, wrong_view

    def attend(self, x, qkv):
        B, T, D = x.shape
        q, k, v = qkv(x).chunk(3, -1)
        if self.wrong_view:
            q, k, v = (each.reshape(B, 2, T, D // 2) for each in (q, k, v))
        else:
            q, k, v = (each.view(B, T, 2, D // 2).transpose(1, 2) for each in (q, k, v))
        scores = (q @ k.transpose(-2, -1) / 4).masked_fill(~self.allowed(T), self.hide)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D)


def ones(T):
    return torch.ones(T, T, dtype=torch.bool)


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (lambda: Masked(lambda T: ones(T).tril(1)), "each position sees the one after it: the mask is off by one"),
        (lambda: Masked(lambda T: ones(T).tril(3)), "each position sees the next 3"),
        (lambda: Masked(lambda T: ones(T).tril(-1), hide=-1e4), "position 0 sees every later one"),
        (lambda: Masked(lambda T: ones(T).triu()), "each position sees only later ones: the mask is reversed"),
        (lambda: Masked(lambda T: ones(T).tril(), wrong_view=True), "0 sees 8, 1 sees 8"),
    ],
    ids=["off by one", "off by three", "hides itself", "reversed", "a wrong view"],
)
def test_which_position_leaks_to_which(model, rule):
    found = told(model(), "future leak")
    assert rule in found.sentence and "by its output and by its gradient" in found.sentence
    assert found.where == "blocks.0"


def test_a_leak_that_only_gradients_or_only_outputs_show():
    class Through(Writer):
        def forward(self, idx):
            x = super().forward(idx)
            ahead = F.pad(x[:, 1:], (0, 0, 0, 1))
            return x + self.mix(ahead)

        def mix(self, ahead):
            return ahead.detach().round()

    class Straight(Through):
        def mix(self, ahead):
            return ahead - ahead.detach()

    assert told(Through(), "future leak").sentence.endswith("seen by its output")
    assert told(Straight(), "future leak").sentence.endswith("seen by its gradient")


def test_an_encoder_leaks_only_if_it_is_said_to_be_causal():
    assert "an encoder" in verdicts(Encoder())["hides the future"].found
    found = told(Encoder(), "future leak", causal=True)
    assert "nothing hides the future" in found.sentence


class Text(nn.Module):
    """A classifier with some ways to go wrong."""

    def __init__(self, *, mean="real", buffer=True, plain=False, batch_norm=False):
        super().__init__()
        self.tokens, self.mean = nn.Embedding(VOCAB, 32), mean
        places = torch.randn(64, 32) * 0.1
        if buffer:
            self.register_buffer("places", places)
        else:
            self.places = places
        layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)]
        self.layers = layers if plain else nn.ModuleList(layers)
        self.norm = nn.BatchNorm1d(32) if batch_norm else nn.Identity()
        self.head = nn.Linear(32, 4)

    def forward(self, x, lengths):
        hidden = torch.arange(x.shape[1]) >= lengths[:, None]
        x = self.tokens(x) + self.places[: x.shape[1]]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=hidden)
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x = x.mean(1) if self.mean == "all" else (x * ~hidden[..., None]).sum(1) / lengths[:, None]
        return types.SimpleNamespace(logits=self.head(x))


@pytest.mark.parametrize(
    ("changes", "cause", "where"),
    [
        (dict(), None, None),
        (dict(mean="all"), "padding leak", None),
        (dict(buffer=False), "tensor not registered", "places"),
        (dict(plain=True), "layers not registered", "layers"),
        (dict(batch_norm=True), "batch dependence", None),
    ],
    ids=["healthy", "a mean over padding", "no buffer", "no ModuleList", "BatchNorm over tokens"],
)
def test_a_classifier_that_takes_lengths(changes, cause, where):
    found = examine_module(Text(**changes), "it").findings
    assert [finding.cause for finding in found][:1] == ([cause] if cause else [])
    assert not found or found[0].where == where


def test_a_mask_that_overflows_in_half_precision():
    found = examine_module(Masked(lambda T: ones(T).tril(), hide=-1e9), "it").findings
    assert [finding.cause for finding in found] == ["dtype trap"]
    assert "float16" in found[0].sentence and "test_exam.py, line" in found[0].sentence


def test_a_row_of_the_mask_that_hides_everything():
    found = told(Masked(lambda T: ones(T).tril(-1)), "not finite")
    assert found.where == "blocks.0" and "100%" in found.sentence


def test_a_batch_axis_in_the_wrong_place_is_told_from_a_wrong_view():
    assert "batch_first" in told(Mixer(batch_first=False), "batch dependence").cure


def test_an_embedding_that_is_too_loud_for_the_output_tied_to_it():
    model = Writer()
    model.head.weight = model.tokens.weight
    found = told(model, "exploding initialisation")
    assert "ln 61 = 4.11" in found.sentence


# ---- ways to call ---------------------------------------------------------------------------------------------


class Nano(Writer):
    """Answers for the last position only, unless there are targets."""

    def forward(self, idx, targets=None):
        logits = super().forward(idx)
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Pair(nn.Module):
    def __init__(self, causal=True):
        super().__init__()
        self.causal, self.places = causal, nn.Parameter(torch.randn(64, 32) * 0.1)
        self.source, self.target = nn.Embedding(70, 32), nn.Embedding(VOCAB, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
        self.head = nn.Linear(32, VOCAB)

    def forward(self, src, tgt, src_key_padding_mask=None):
        mask = self.transformer.generate_square_subsequent_mask(tgt.shape[1]) if self.causal else None
        x = self.transformer(
            self.source(src) + self.places[: src.shape[1]], self.target(tgt) + self.places[: tgt.shape[1]],
            tgt_mask=mask, src_key_padding_mask=src_key_padding_mask, memory_key_padding_mask=src_key_padding_mask,
        )  # fmt: skip
        return self.head(x)


class Patches(nn.Module):
    def __init__(self, positions=True):
        super().__init__()
        self.cut, self.first = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.zeros(1, 1, 32))
        self.places = nn.Parameter(torch.randn(17, 32) * 0.02) if positions else 0
        self.layer, self.head = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), nn.Linear(32, 10)

    def forward(self, x):
        x = torch.cat([self.first.expand(len(x), -1, -1), self.cut(x).flatten(2).transpose(1, 2)], 1)
        return self.head(self.layer(x + self.places)[:, 0])


class Anything(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Writer()

    def forward(self, *args):
        return {"other": torch.zeros(()), "scores": self.inner(*args)}


def test_what_is_not_said_is_guessed():
    found = examine_module(Nano(), "it")
    assert found.inputs.startswith("idx 3×16 tokens below 61, targets 3×16 tokens below 61 (guessed;")
    assert not found.findings
    found = examine_module(Pair(), "it")
    assert found.inputs.startswith("src 3×16 tokens below 70, tgt 3×13 tokens below 61 (guessed;")
    assert not found.findings
    assert examine_module(Patches(), "it").inputs.startswith("x 3×3×32×32 pixels (guessed;")


def test_what_is_guessed_right_finds_faults():
    assert causes(Pair(causal=False)) == ["future leak"]
    assert causes(Patches(positions=False)) == ["positions missing"]


def test_examples_come_as_tensor_tuple_dictionary_or_in_order():
    ids, targets = torch.randint(VOCAB, (2, 9)), torch.randint(VOCAB, (2, 9))
    for model, inputs in [(Writer(), ids), (Nano(), (ids, targets)), (Writer(), {"idx": ids}), (Anything(), (ids,))]:
        found = examine_module((model, inputs), "it")
        assert "2×9 tokens below 61" in found.inputs and "guessed" not in found.inputs
        assert not found.findings


def test_a_loss_of_the_users_own_is_the_one_that_is_learnt():
    ids, targets = torch.randint(VOCAB, (4, 9)), torch.randint(VOCAB, (4, 9))
    found = verdicts((Nano(), (ids, targets), lambda out: out[1]))
    assert "your loss is 4." in found["loss at the start"].found
    assert found["learns one batch by heart"].verdict == "ok"
    found = verdicts((Nano(), (ids, targets), lambda out: out[1] * 0 + 3))
    assert found["learns one batch by heart"].verdict == "broken"


def test_the_module_is_left_as_it_was():
    model = Writer().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    examine_module(model, "it")
    assert model.training and torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_that_takes_too_long_gets_a_note():
    found = examine_module(Writer(), "it", seconds=0.0)
    assert {check.verdict for check in found.outcomes} == {"not applicable"}
    assert "no time left" in found.outcomes[0].found


def test_the_answer_in_what_a_module_returns():
    x = torch.zeros(2, 3)
    for out in (
        x,
        (torch.zeros(()), x),
        {"loss": torch.zeros(()), "logits": x},
        types.SimpleNamespace(a=None, logits=x),
    ):
        assert answer_in(out) is x
    with pytest.raises(ValueError, match="forward returns str without a floating-point tensor"):
        answer_in("x")


# ---- healthy ones that others wrote, and ours -----------------------------------------------------------------

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)


def foreign(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config, model, sizes = {
        "gpt2": ("GPT2Config", "GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1)),
        "bert": ("BertConfig", "BertForMaskedLM", SIZES),
        "llama": ("LlamaConfig", "LlamaForCausalLM", SIZES | dict(num_key_value_heads=2)),
        "t5": ("T5Config", "T5ForConditionalGeneration", dict(d_model=32, num_layers=1, num_heads=4, d_kv=8, d_ff=64)),
        "vit": ("ViTConfig", "ViTForImageClassification", SIZES | dict(image_size=32, patch_size=8)),
    }[name]
    words = {} if name == "vit" else dict(vocab_size=97)
    return getattr(transformers, model)(getattr(transformers, config)(**words | sizes))


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "t5", "vit"])
def test_models_of_transformers_are_healthy(name):
    assert causes(foreign(name)) == []


def test_a_foreign_one_that_was_broken():
    model = foreign("bert")
    model.cls.predictions.transform.dense.requires_grad_(False)
    assert causes(model) == ["a frozen layer"]


@pytest.mark.parametrize("family", list(models))
def test_our_families_are_healthy(family):
    model = make(family)
    assert causes((model, example(model))) == []


@pytest.mark.slow
@pytest.mark.parametrize(("family", "number"), [case for case in CASES if case[1]])
def test_so_are_their_variants(family, number):
    model = make(family, number)
    assert causes((model, example(model))) == []


# ---- the command ----------------------------------------------------------------------------------------------

MODULE = """
    import torch
    from torch import nn

    class Bag(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.words, self.out = nn.Embedding(40, 16), nn.Linear(width, 40)
        def forward(self, ids):
            return self.out(self.words(ids).cumsum(1))

    def bag(): return Bag()
    def words(): return nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40))
    def narrow(): return Bag(width=15)
    def given(): return Bag(width=15), torch.ones(2, 9, dtype=torch.long)
    def odd(): return Bag(), {"tokens": 3}
    def number(): return 3
    def fails(): return 1 / 0
    constant = 7
"""


@pytest.fixture
def mine(here):  # noqa: F811
    (here / "my_module.py").write_text(textwrap.dedent(MODULE))
    return here


def test_the_command_prints_checks_and_causes(mine, capsys):
    with pytest.raises(SystemExit) as stop:
        call("doctor", "my_module:words")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "ok             loss at the start: the loss at the start is" in shown and "nothing is wrong" in shown
    with pytest.raises(SystemExit) as stop:
        call("doctor", "my_module:bag", "--json")
    found = json.loads(capsys.readouterr().out)
    assert stop.value.code == 1 and found["broken"] == 1
    assert found["findings"][0]["cause"] == "positions missing"


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("my_module", "'my_module' is no run and no registered family (ast, bert,"),
        ("my_modul:bag", "no module 'my_modul' in"),
        ("my_module:bagg", "module 'my_module' has no 'bagg'; it defines Bag, bag, words"),
        ("my_module:constant", "has 'constant', but that is a int"),
        ("my_module:number", "gives int, no nn.Module; return one, or (module, example inputs)"),
        ("my_module:fails", "my_module:fails() fails: ZeroDivisionError: division by zero (my_module.py, line"),
        ("my_module:narrow", "no way was found to call forward(ids): RuntimeError: mat1 and mat2"),
        ("my_module:given", "fails in forward: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("my_module:odd", "the example holds no tensor"),
    ],
)
def test_a_mistake_is_one_line(mine, capsys, target, line):
    found = fails(capsys, "doctor", target)
    assert line in found
    if target.endswith(("narrow", "given")):
        assert "(my_module.py, line 10)" in found
