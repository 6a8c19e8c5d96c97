"""The doctor on kernels of a user's own: what is broken is named, a mistake is one line, the page's example runs."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from regard.doctor import kernels as doctor
from regard.doctor.kernels import LAWS, examine, missing
from regard.doctor.verdicts import judge
from regard.nn.kernels import Full
from regard.registry import kernels
from regard.tasks import translator
from tests.cli.calling import call, fails
from tests.train.conftest import SMALL

PAGE = (Path(__file__).parents[2] / "docs" / "own-kernel.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a user's files; what they register or import is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "_entries", dict(kernels._entries))
    known, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def found(kernel, name):
    """What one law says about a kernel."""
    law = next(law for law in LAWS if law.name == name)
    return judge(law, kernel, missing)


# ---- what it finds --------------------------------------------------------------------------------------------


class Changed(Full):
    """Full attention with something done to its output."""

    def forward(self, q, k, v, **how):
        out, weights = super().forward(q, k, v, **how)
        return self.change(out, v), weights

    def change(self, out, v):
        return out


class Average(Changed):
    def change(self, out, v):
        return out * 0 + v.mean(2, keepdim=True).repeat_interleave(out.shape[1] // v.shape[1], 1)


class Line(Changed):
    def change(self, out, v):
        return out[..., :1].expand_as(out).contiguous()


class Loud(Changed):
    def change(self, out, v):
        return out * 1e38 * 1e38 if out.dtype == torch.float32 else out


class BatchNorm(Changed):
    def change(self, out, v):
        return out - out.mean(0, keepdim=True)


class Dead(Changed):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.unused = torch.nn.Parameter(torch.ones(3))


class Deaf(Full):
    def forward(self, q, k, v, *, bias=None, dropout=0.0, **how):
        return super().forward(q, k, v, **how)


class Picky(Full):
    any_mask = False


class Nervous(Full):
    def forward(self, q, k, v, *, weights=False, **how):
        out, found = super().forward(q, k, v, weights=weights, **how)
        return (out + 0.1 if weights else out), found


class Rough(Full):
    exact = False
    tolerance = 0.01

    def forward(self, q, k, v, **how):
        return super().forward(q, k + 0.3 * k.detach().sin(), v, **how)


class Forgetful(Full):
    """A leak that only long sequences show: from position 128 on nothing is hidden."""

    def forward(self, q, k, v, *, mask=None, **how):
        out, weights = super().forward(q, k, v, mask=mask, **how)
        if q.shape[2] > 128 and not how.get("weights"):
            out = torch.cat([out[:, :, :127], super().forward(q[:, :, 127:], k, v, **how)[0]], 2)
        return out, weights


@pytest.mark.parametrize(
    ("kernel", "law"),
    [
        (Average, "does not collapse"),
        (Line, "does not collapse"),
        (Loud, "finite in float32 and bfloat16"),
        (BatchNorm, "batch equals single"),
        (Dead, "every parameter learns"),
        (Deaf, "takes a bias"),
        (Deaf, "drops weights"),
        (Picky, "honours masks, refuses others"),
        (Nervous, "weights explain the output"),
        (Rough, "stays within its tolerance"),
        (Forgetful, "hides the future: outputs"),
        (Forgetful, "hides the future: gradients"),
    ],
)
def test_what_is_wrong_is_named(kernel, law):
    assert found(kernel, law).verdict == "broken"
    assert found(Full, law).verdict == ("not claimed" if kernel is Rough else "ok")


def test_what_is_not_claimed_is_not_asked():
    class Modest(Deaf):
        biased = drops = weighs = causal = crosses = False

        def forward(self, q, k, v, *, mask=None, **how):
            if mask is not None and mask.hides_future:
                raise ValueError("no")
            return super().forward(q, k, v, mask=mask, **how)

    unasked = {law.name for law in LAWS if found(Modest, law.name).verdict == "not claimed"}
    assert unasked >= {"hides the future: outputs", "cached equals uncached", "takes a bias", "drops weights"}
    assert found(Modest, "honours masks, refuses others").verdict == "ok"


def test_one_that_fails_only_sometimes_is_broken_there_and_nowhere_else():
    class Fragile(Full):
        def forward(self, q, k, v, *, bias=None, **how):
            if bias is not None:
                raise RuntimeError("no bias today")
            return super().forward(q, k, v, **how)

    assert found(Fragile, "drops weights").verdict == "ok"
    broken = found(Fragile, "takes a bias")
    assert broken.verdict == "broken" and "RuntimeError: no bias today (test_kernels.py, line" in broken.found


def test_time_is_measured_beside_full_and_only_as_far_as_it_goes(monkeypatch):
    monkeypatch.setattr(doctor, "SIZES", (8, 32))
    monkeypatch.setattr(doctor, "LAWS", [])
    speed = examine(Full, "full").outcomes[-1]
    assert speed.law == "speed" and re.search(r"8 positions .* 32 positions .*time grows as n\^", speed.found)
    monkeypatch.setattr(doctor, "MAX_SECONDS", 0.0)
    assert "32 were not tried" in examine(Full, "full").outcomes[-1].found


def test_looking_leaves_the_dice_alone(monkeypatch):
    monkeypatch.setattr(doctor, "LAWS", [law for law in LAWS if law.name == "drops weights"])
    torch.manual_seed(3)
    first = torch.rand(1)
    torch.manual_seed(3)
    examine(Full, "full", speed=False)
    assert torch.equal(torch.rand(1), first)


def test_an_exponent_is_the_slope():
    assert doctor.exponent([0.5, 8.0]) == pytest.approx(2.0)


# ---- the command ----------------------------------------------------------------------------------------------

MINE = """
from regard.nn.kernels import Full
from regard.registry import register_kernel

@register_kernel("mine")
class Mine(Full):
    def __init__(self, sharpness: float = 1.0, **sizes):
        super().__init__(**sizes)

class NoSizes(Full):
    def __init__(self):
        super().__init__()

class Failing(Full):
    def forward(self, q, k, v, **how):
        raise RuntimeError("not yet")

class Wrong(Full):
    def forward(self, q, k, v, **how):
        return q

number = 3
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:mine", "no module 'nowhere' in "),
        ("gone.py:mine", "no file 'gone.py' in "),
        ("my:nothing", "module 'my' has no 'nothing'; its kernels: Mine, NoSizes, Failing, Wrong"),
        ("my:number", "'my:number' is 3, no Kernel; derive a class from regard.nn.kernels.Kernel"),
        ("my:NoSizes", "my:NoSizes cannot be built: TypeError: NoSizes.__init__() got an unexpected keyword"),
        ("my:Failing", "my:Failing fails in forward: RuntimeError: not yet (my.py, line 16)"),
        ("my:Wrong", "my:Wrong returns a wrong output: forward returned Tensor, not (out, weights)"),
        ("my:mine:sharpnes=2", "no setting 'sharpnes'; did you mean 'sharpness'?"),
        ("broken:mine", "module 'broken' cannot be imported: SyntaxError"),
        ("needy:mine", "module 'needy' cannot be imported: ModuleNotFoundError: No module named 'not_there' (needy.py"),
        ("taken:mine", "module 'taken' cannot be imported: ValueError: kernel 'full' is registered already"),
        ("fulll", "unknown kernel 'fulll'; did you mean 'full'? (one of your own: regard --plugin FILE …)"),
        ("window:radus=3", "no setting 'radus'; did you mean 'radius'?"),
    ],
)
def test_mistakes_are_one_line(here, capsys, name, message):
    (here / "my.py").write_text(MINE)
    (here / "broken.py").write_text("def f(:\n")
    (here / "needy.py").write_text("import not_there\n")
    (here / "taken.py").write_text("from regard.registry import register_kernel\nregister_kernel('full')(object)\n")
    assert message in fails(capsys, "doctor", "--kernel", name)


@pytest.fixture
def two_laws(monkeypatch):
    monkeypatch.setattr(doctor, "LAWS", [LAWS[1], LAWS[8]])  # one is not claimed by exact kernels


def report(capsys, *words):
    """Exit code and JSON of a doctor's visit."""
    with pytest.raises(SystemExit) as stop:
        call("doctor", "--no-speed", "--json", *words)
    return stop.value.code, json.loads(capsys.readouterr().out)["kernels"]


def test_own_and_registered_kernels_side_by_side(here, capsys, two_laws):
    (here / "my.py").write_text(MINE)
    names = ["my:Mine", "my:mine:sharpness=2", "window:radius=3"]
    code, reports = report(capsys, *(word for name in names for word in ("--kernel", name)))
    assert code == 0 and [each["kernel"] for each in reports] == names
    for each in reports:
        assert each["broken"] == 0 and [law["verdict"] for law in each["laws"]] == ["ok", "ok", "not claimed"]


def test_a_broken_kernel_is_an_exit_code(here, capsys, two_laws):
    leaky = "class Leaky(Full):\n    def forward(self, q, k, v, **how):\n        return super().forward(q, "
    (here / "my.py").write_text(MINE + leaky + "k.roll(-1, 2), v.roll(-1, 2), **how)\n")
    code, (one,) = report(capsys, "--kernel", "my:Leaky")
    assert code == 1 and one["broken"] == 1 and "it leaks" in one["laws"][1]["found"]


# ---- docs/own-kernel.md ---------------------------------------------------------------------------------------


def test_the_page_needs_about_thirty_lines_and_its_doctor_says_ok(here, capsys):
    (here / "my_kernels.py").write_text(CODE[0])
    assert len(CODE[0].splitlines()) <= 30
    with pytest.raises(SystemExit) as stop:
        call("doctor", "--no-speed", "--kernel", "my_kernels:votes")
    assert stop.value.code == 0
    shown = [line for line in SHOWN[0].splitlines() if "speed:" not in line]
    assert capsys.readouterr().out.splitlines()[:-1] == shown[:-1]


def test_the_page_tells_the_truth_about_the_leak(here, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "LAWS", LAWS[:2])
    (here / "my_kernels.py").write_text(CODE[0].replace("mask=allowed", "mask=None"))
    with pytest.raises(SystemExit) as stop:
        call("doctor", "--no-speed", "--kernel", "my_kernels:votes")
    assert stop.value.code == 1
    assert capsys.readouterr().out.splitlines()[2:4] == SHOWN[1].splitlines()


def test_the_page_trains_uses_and_looks_and_nothing_is_imported_that_was_not_named(here, capsys, monkeypatch):
    (here / "my_kernels.py").write_text(CODE[0])
    monkeypatch.setattr(translator, "TEST_EXAMPLES", 4)
    fields = [
        word
        for key, value in (SMALL | {"train.steps": 2, "data.epoch_size": 300}).items()
        for word in (f"--{key}", value)
    ]
    train = ["train", "translate", "--model.kernel", "votes", "--out", "runs/votes", "--quiet", *fields]
    missing = "unknown kernel 'votes'; known: additive, "
    assert missing in fails(capsys, *train)
    monkeypatch.setenv("REGARD_PLUGINS", "my_kernels")
    call(*train)
    monkeypatch.delenv("REGARD_PLUGINS")

    kernels._entries.pop("votes")  # as in a new process
    del sys.modules["my_kernels"]
    capsys.readouterr()
    line = fails(capsys, "translate", "runs/votes", "three")
    assert f"config.json: {missing}" in line and "(one of your own: regard --plugin FILE …)" in line
    plugin = ["--plugin", "my_kernels"]
    call(*plugin, "translate", "runs/votes", "three", "--beam", "1")
    assert len(capsys.readouterr().out.splitlines()) == 1
    call(*plugin, "look", "runs/votes", "three", "--out", "votes.png")
    assert (here / "votes.png").stat().st_size > 5000

    capsys.readouterr()
    (here / "look.py").write_text(CODE[1])
    runpy.run_path(str(here / "look.py"))
    assert capsys.readouterr().out.count("torch.Size([1, 4, 9, 9])") == 2
