import pytest
import torch

from rlf.engines.local.model import load_model
from rlf.testing.models import save_random_model


@pytest.fixture(autouse=True)
def _one_thread():
    """Operations run on one core, as the engine's threads run them: how a sum is split decides its last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A random two-layer Qwen3 with grouped keys, float32, on the CPU."""
    folder = save_random_model(tmp_path_factory.mktemp("model"))
    return load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))
