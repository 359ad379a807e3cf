"""What must hold for a model to be shown pictures."""

from __future__ import annotations

from collections.abc import Iterator

from rlf.core import Fault
from rlf.plan.layout import Layout
from rlf.spec import LoadedSpec
from rlf.spec.engines.openrlhf import OpenRlhfEngineSpec


def find_image_faults(loaded: LoadedSpec) -> Iterator[Fault]:
    """The faults of a spec with pictures; none of one without."""
    spec, max_images = loaded.spec, loaded.spec.rollout.max_images
    sources = {"train": spec.data.train, "eval": spec.data.eval}
    if max_images == 0:
        for name, source in sources.items():
            if source is not None and source.images is not None:
                message = "names pictures, and rollout.max_images is 0. Write how many a trajectory may hold, or remove"
                yield loaded.fault(("data", name, "images"), f"{message} this.")
        return
    if not isinstance(spec.engine, OpenRlhfEngineSpec):
        message = f"got {max_images}; the local engine trains models of text alone. Write engine: {{kind: openrlhf}}."
        yield loaded.fault(("rollout", "max_images"), message)
        return
    if spec.train.algorithm.needs_critic:
        message = "got gae with rollout.max_images; OpenRLHF's critic sees no pictures. Write e.g. reinforce_baseline."
        yield loaded.fault(("train", "algorithm"), message)
    if spec.engine.packing:
        message = "got true with rollout.max_images; in packed rows OpenRLHF loses which picture is whose. Write false."
        yield loaded.fault(("engine", "packing"), message)
    if spec.engine.zero_stage == 3 and Layout.of(spec).num_ranks > 1:
        message = (
            "got 3 with rollout.max_images; a GPU whose rows hold no picture gathers no weights of what sees, and "
        )
        yield loaded.fault(("engine", "zero_stage"), f"{message}the others would wait for it. Write 2.")
    if spec.model.lora is not None:
        message = "got adapters with rollout.max_images; vLLM's names of the weights of models that see are others. "
        yield loaded.fault(("model", "lora"), f"{message}Remove it.")
