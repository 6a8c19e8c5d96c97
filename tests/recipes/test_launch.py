"""Files that start a training on a cluster: what their languages accept, and the command that they run."""

import ast
import json
import subprocess

import pytest

from regard.runs.launch import WRITERS, Job

FIELDS = dict(name="lm", words=("lm", "--data.text", "my book.txt"), out="runs/my lm", image="regard", claim="work")


def test_a_job_for_slurm_is_a_shell_script():
    text = WRITERS["slurm"](Job(**FIELDS, nodes=2, processes=4, gpus=True, hours=1.5))
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert "--time=1:30:00" in text and "--gpus-per-node=4" in text and "--nodes=2" in text


def test_a_job_for_kubernetes_names_the_first_node():
    service, job = json.loads(WRITERS["kubernetes"](Job(**FIELDS, nodes=2)))["items"]
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"] and job["spec"]["completions"] == 2
    assert "--master-addr lm-0.lm" in pod["containers"][0]["command"][-1]


def test_a_job_for_ray_is_a_program():
    ast.parse(WRITERS["ray"](Job(**FIELDS, nodes=2, gpus=True)))


@pytest.mark.parametrize("there", [False, True])
def test_the_command_has_plugins_and_goes_on_with_a_run(tmp_path, there):
    """A shell reads names with spaces as one word each, and adds --resume where a run was begun."""
    out = tmp_path / "my run"
    out.mkdir()
    if there:
        (out / "recipe.toml").touch()
    command = Job(**FIELDS | {"out": str(out)}, plugins=("my family.py",)).command()
    script = f"torchrun() {{ printf '%s\\n' \"$@\"; }}; {command}"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    words = ["-m", "regard", "--plugin", "my family.py", "train", *FIELDS["words"], "--out", str(out)]
    assert shown[shown.index("-m") :] == words + ["--resume"] * there


@pytest.mark.parametrize(
    "fields, error",
    [({"name": "My_Job"}, "--job My_Job: use lower-case"), ({"nodes": 0}, "--nodes 0 must be positive")],
)
def test_what_no_cluster_takes_is_refused(fields, error):
    with pytest.raises(ValueError, match=error):
        Job(**FIELDS | fields)
