"""Files that start a training on a cluster: for Slurm, Kubernetes and Ray. Each lets `torchrun` start the processes."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass

PORT = 29_500
RESTARTS = 3
"""Times that a group of processes starts again after one was lost; then the cluster may start the job again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A training on several nodes."""

    name: str
    words: tuple[str, ...]
    """The recipe and its fields, as they stand behind `regard train`."""
    plugins: tuple[str, ...] = ()
    """Files or modules of the user's own, which every node sees."""
    out: str
    """The directory of the run, which every node sees."""
    nodes: int = 1
    processes: int = 1
    """Processes of a node."""
    gpus: bool = False
    """Whether each process has a GPU."""
    hours: float = 24.0
    image: str = ""
    """The container that Kubernetes starts."""
    claim: str = ""
    """The persistent volume claim of Kubernetes that holds the run."""

    def __post_init__(self) -> None:
        for name in ("nodes", "processes", "hours"):
            if getattr(self, name) <= 0:
                raise ValueError(f"--{name} {getattr(self, name)} must be positive")
        if not self.name.replace("-", "").isalnum() or not self.name.islower() or not self.name[0].isalpha():
            raise ValueError(f"--job {self.name}: use lower-case letters, digits and hyphens, such as lm-book")

    def command(self, *rendezvous: str) -> str:
        """The shell command of a node. A job that the cluster starts again goes on with its run."""
        resume = f"$(test -e {shlex.quote(self.out)}/recipe.toml && echo --resume)"
        own = [word for name in self.plugins for word in ("--plugin", name)]
        words = shlex.join(["-m", "regard", *own, "train", *self.words, "--out", self.out])
        first = f"torchrun --nnodes {self.nodes} --nproc-per-node {self.processes} --max-restarts {RESTARTS}"
        return f"{' '.join([first, *rendezvous])} {words} {resume}"


def slurm(job: Job) -> str:
    """A file for `sbatch`: one task a node, which the first node's address joins."""
    hours, minutes = divmod(round(job.hours * 60), 60)
    options = {
        "job-name": job.name, "nodes": job.nodes, "ntasks-per-node": 1, "time": f"{hours}:{minutes:02}:00",
        "output": f"{job.name}-%j.log", "open-mode": "append",
    }  # fmt: skip
    lines = [f"#SBATCH --{option}={value}" for option, value in options.items()]
    lines += ["#SBATCH --requeue", f"#SBATCH --cpus-per-task={job.processes}"]
    lines += [f"#SBATCH --gpus-per-node={job.processes}"] if job.gpus else []
    place = '--rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint'
    command = job.command(place, f'"$first:{PORT}"')
    return "\n".join([
        "#!/bin/bash", *lines, "set -euo pipefail",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export first OMP_NUM_THREADS=1",
        f"srun bash -c {shlex.quote(command)}", "",
    ])  # fmt: skip


def kubernetes(job: Job) -> str:
    """A manifest for `kubectl apply`, in JSON: an indexed job, a pod for each node, and a service that names them."""
    if not job.image or not job.claim:
        raise ValueError("--on kubernetes needs --image, a container with regard, and --claim, a volume for --out")
    host = f"{job.name}-0.{job.name}"
    place = f'--node-rank "$JOB_COMPLETION_INDEX" --master-addr {host} --master-port {PORT}'
    limits = {"nvidia.com/gpu": job.processes} if job.gpus else {"cpu": job.processes}
    container = {
        "name": "train", "image": job.image, "command": ["bash", "-c", job.command(place)],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}], "resources": {"limits": limits},
        "workingDir": "/work", "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }  # fmt: skip
    pod = {
        "subdomain": job.name, "restartPolicy": "Never", "containers": [container],
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": job.claim}}],
    }  # fmt: skip
    labels = {"app": job.name}
    spec = {
        "completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes,
        "backoffLimit": RESTARTS * job.nodes, "activeDeadlineSeconds": round(job.hours * 3600),
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": job.name},
        "spec": {"clusterIP": "None", "selector": labels, "ports": [{"name": "torchrun", "port": PORT}],
                 "publishNotReadyAddresses": True},
    }  # fmt: skip
    batch = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, batch]}, indent=2) + "\n"


RAY = '''"""A training on a Ray cluster, one task a node: ray job submit --working-dir . -- python {name}.py"""

import subprocess

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

COMMAND = {command!r}
NODES, NEEDS = {nodes}, {needs!r}


@ray.remote(max_retries={restarts})
def node(rank: int, first: str) -> None:
    subprocess.run(["bash", "-c", COMMAND], check=True, env=environment(rank, first))


def environment(rank: int, first: str) -> dict[str, str]:
    import os

    return os.environ | {{"NODE_RANK": str(rank), "FIRST": first, "OMP_NUM_THREADS": "1"}}


@ray.remote
def address() -> str:
    return ray.util.get_node_ip_address()


ray.init()
group = placement_group([NEEDS] * NODES, strategy="SPREAD")
ray.get(group.ready())
places = [
    {{"num_cpus": NEEDS["CPU"], "num_gpus": NEEDS.get("GPU", 0),
     "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)}}
    for rank in range(NODES)
]
first = ray.get(address.options(**places[0]).remote())
ray.get([node.options(**place).remote(rank, first) for rank, place in enumerate(places)])
'''


def ray(job: Job) -> str:
    """A program for `ray job submit`: a task on each node, in which `torchrun` starts its processes."""
    place = f'--node-rank "$NODE_RANK" --master-addr "$FIRST" --master-port {PORT}'
    needs = {"CPU": job.processes} | ({"GPU": job.processes} if job.gpus else {})
    return RAY.format(name=job.name, command=job.command(place), nodes=job.nodes, needs=needs, restarts=RESTARTS)


WRITERS: dict[str, Callable[[Job], str]] = {"slurm": slurm, "kubernetes": kubernetes, "ray": ray}
SUBMIT = {"slurm": "sbatch {file}", "kubernetes": "kubectl apply -f {file}",
          "ray": "ray job submit --working-dir . -- python {file}"}  # fmt: skip
