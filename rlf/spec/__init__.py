"""The YAML of a run: its models, and how files, layers and overrides become one checked spec.

What lives here reads files and knows keys; what a spec means as a whole is `rlf.plan`'s. Nothing here loads torch.
"""

from rlf.spec.inputs import check_inputs
from rlf.spec.layers import InputFile, Interpolation, restore, write_back
from rlf.spec.load import LoadedSpec, load_spec
from rlf.spec.models import RunSpec

__all__ = ["InputFile", "Interpolation", "LoadedSpec", "RunSpec", "check_inputs", "load_spec", "restore", "write_back"]
