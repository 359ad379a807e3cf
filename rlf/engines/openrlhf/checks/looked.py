"""Faults in the model, the data and the names of options, found before a job of OpenRLHF is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlf.core import Fault, RlfError
from rlf.core.servers import server_context
from rlf.data import recall
from rlf.engines.openrlhf.compile.parser import find_flag_faults
from rlf.engines.openrlhf.job.dataset import find_row_fault
from rlf.engines.openrlhf.settings import openrlhf_settings
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.model_files import folder_on_disk, read_config
from rlf.spec.reader import shown_path
from rlf.types.task import Task


def find_looked_faults(loaded: LoadedSpec, tasks: Mapping[str, Sequence[Task]]) -> Iterator[Fault]:
    """Args: tasks: the rows that were read of `data.train` and `data.eval`, by these names."""
    yield from find_flag_faults(loaded)
    yield from _find_heads(loaded)
    yield from _find_adapted_sight(loaded)
    yield from _find_certificate(loaded)
    for name, rows in tasks.items():
        complaint = recall(find_row_fault, rows)
        if complaint is not None:
            yield loaded.fault(("data", name, "path"), complaint)


@reads("engine.vllm", "model.path")
def _find_heads(loaded: LoadedSpec) -> Iterator[Fault]:
    """vLLM gives each GPU of an engine as many attention heads."""
    parts, folder = openrlhf_settings(loaded.spec).vllm.tensor_parallel, folder_on_disk(loaded.spec.model.path)
    config = {} if folder is None else read_config(folder)
    heads = config.get("text_config", config).get("num_attention_heads")
    if isinstance(heads, int) and heads % parts:
        fitting = max(n for n in range(1, parts) if heads % n == 0)
        message = f"got {parts}; the model has {heads} attention heads, which must divide evenly. "
        yield loaded.fault(("engine", "vllm", "tensor_parallel"), f"{message}Write e.g. `tensor_parallel: {fitting}`.")


@reads("model.path", "model.lora")
def _find_adapted_sight(loaded: LoadedSpec) -> Iterator[Fault]:
    """Adapters of a model that sees, whether it is shown anything or not."""
    lora, folder = loaded.spec.model.lora, folder_on_disk(loaded.spec.model.path)
    if lora is not None and folder is not None and "vision_config" in read_config(folder):
        message = f"got adapters; {shown_path(folder)} sees images, and vLLM's names of the weights of such models "
        yield loaded.fault(("model", "lora"), f"{message}are others. Remove it.")


@reads("engine.ingest")
def _find_certificate(loaded: LoadedSpec) -> Iterator[Fault]:
    """Files that no server can show."""
    ingest = openrlhf_settings(loaded.spec).ingest
    try:
        server_context(None if ingest is None else ingest.shown())
    except RlfError as fault:
        yield loaded.fault(("engine", "ingest", "certificate"), str(fault))
