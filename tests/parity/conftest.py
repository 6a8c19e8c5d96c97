"""Their library keeps quiet, and tiny models use one thread."""

import logging

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def quiet():
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors this small only wait for a second thread
    yield
    torch.set_num_threads(threads)
