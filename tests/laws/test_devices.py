"""The laws of `devices.py` in a process of its own: PyTorch's autograd counts the devices there are at the first
backward pass, and other tests of the same process may have made one.
"""

import subprocess
import sys
from pathlib import Path


def test_every_family_and_kernel_computes_on_another_device(pytestconfig):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [str(Path(__file__).with_name("devices.py"))] + ["--slow"] * pytestconfig.getoption("--slow")
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr
