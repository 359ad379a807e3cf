"""The model that a run saves where it trains adapters: they alone, with the name of the model that they are for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.core.errors import RunError, first_line
from rlf.core.identity import MANIFEST, hash_path
from rlf.core.text import list_some

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OF_ADAPTERS = ("adapter_*", "README.md", "manifest.json")
"""Files of such a folder that say nothing of the model when they are merged."""
_CONFIG = "adapter_config.json"


def holds_adapters(folder: Path) -> bool:
    """Whether a saved model is adapters alone."""
    return (folder / _CONFIG).is_file()


def load_saved(folder: Path) -> PreTrainedModel:
    """A saved model, whole: adapters are merged into the weights.

    They are merged in float32 and rounded once, as for vLLM, to the type in the folder's configuration.

    Raises:
        RunError: it does not load, or the model that its adapters are for does not.
    """
    from transformers import AutoConfig
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    path = str(folder)
    try:
        if not holds_adapters(folder):
            return load_whole(auto_model(AutoConfig.from_pretrained(path)), path)
        path = json.loads((folder / _CONFIG).read_text())["base_model_name_or_path"]
        dtype = AutoConfig.from_pretrained(folder).dtype
        base = load_whole(auto_model(AutoConfig.from_pretrained(path)), path, dtype=dtype)
        from peft import PeftModel

        dtype = base.dtype
        adapted = PeftModel.from_pretrained(base.float(), folder)  # type: ignore[no-untyped-call]
        merged: PreTrainedModel = adapted.merge_and_unload().to(dtype)
        return merged
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(f"{folder}: the trained model does not load from {path!r}: {first_line(error)}") from error


def auto_model(config: Any) -> Any:
    """The class of transformers that OpenRLHF trains a model as: the one for images where it sees any."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM


# A checkpoint's files compared with its manifest. No torch: `rlf runs verify` uses it.


def find_file_damage(checkpoint: Path, sha256: str | None = None) -> str | None:
    """The damage to a checkpoint, in words; None where every file is there with the hash of the manifest.

    Args:
        sha256: the manifest's own hash; None: not known.
    """
    manifest = checkpoint / MANIFEST
    if not checkpoint.is_dir():
        return "the folder is gone"
    try:
        digests: dict[str, str] = json.loads(manifest.read_text())
        if sha256 is not None and hash_path(manifest) != sha256:
            return f"{MANIFEST} differs from what was written"
        for name, digest in digests.items():
            if Path(name).name != name:
                return f"{MANIFEST} names {name!r}, which is not a file of the checkpoint"
            if not (checkpoint / name).is_file():
                return f"{name} is gone"
            if hash_path(checkpoint / name) != digest:
                return f"{name} differs from what was written"
    except (OSError, ValueError, AttributeError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    return None


def load_whole(kind: Any, path: str | Path, **options: Any) -> PreTrainedModel:
    """A model whose every weight is of its files: transformers draws those that they lack, and leaves out others.

    Weights beside those of its modules, such as a trainer's value head, are no fault.

    Args:
        kind: the class of transformers that loads it.

    Raises:
        ValueError: the files lack weights, or have some of another shape, or more for modules of the model.
    """
    model, info = kind.from_pretrained(path, output_loading_info=True, ignore_mismatched_sizes=True, **options)
    again = "Fetch the model's files again"
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"its weights lack {list_some(missing)}. {again}")
    if odd := sorted(info["mismatched_keys"]):
        shapes = [f"{name} {list(found)} (config.json: {list(expected)})" for name, found, expected in odd]
        raise ValueError(f"its weights have other shapes than its config.json says: {list_some(shapes)}. {again}")
    own = {_module_form(name) for name, _ in model.named_parameters()}
    if more := [name for name in sorted(info["unexpected_keys"]) if _module_form(name) in own]:
        raise ValueError(f"its weights have {list_some(more)}, which its config.json leaves no room for. {again}")
    loaded: PreTrainedModel = model
    return loaded


def _module_form(name: str) -> str:
    """The module of a weight, with its layer and expert as any."""
    return re.sub(r"\.\d+(?=\.)", ".*", name).rpartition(".")[0]
