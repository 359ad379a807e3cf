import pytest
import torch

from rlf.engines.local.model import load_model

from ...models import save_random_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A random two-layer Qwen3 with grouped keys, float32, on the CPU."""
    folder = save_random_model(tmp_path_factory.mktemp("model"))
    return load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))
