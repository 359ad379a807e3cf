"""Adapts torch, vLLM, DeepSpeed and OpenRLHF to a machine without a GPU, in every process with this folder first on its
path. Each adaptation runs right after the import of the module it is about; nothing heavy is imported here.

What is adapted, and why it changes nothing that a rehearsal is to show:
- torch: questions to a GPU get a CPU's answers; tensors asked for on `cuda` are made on the CPU; beside the
  stand-in for vLLM, what DeepSpeed would compile runs as it is written.
- weight sync: OpenRLHF's broadcast goes over gloo in place of NCCL, and the hand-over of GPU memory between processes
  of one GPU (CUDA IPC) carries the values instead of a handle. Which weights go when is OpenRLHF's own.
- vLLM for CPUs: its linear layers keep their weights where new ones can be loaded, and models that see can be made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

_TIMEOUT_S = 600
"""Patience of the weight broadcast; all its parties are processes of this machine."""


class _Device(str):
    """`torch.cuda.current_device()`: a device as it stands, an index where it is written into `cuda:{...}`."""

    __slots__ = ()

    def __format__(self, format_spec: str) -> str:
        return "0"


def _nothing() -> Callable[..., None]:
    """What a CPU does to synchronise, to free its cache, to choose itself. A new one each, which dynamo needs."""
    return lambda *_args, **_kwargs: None


def _adapt_torch(torch: Any) -> None:
    if torch.cuda.is_available():
        return
    device = _Device("cpu")
    torch.cuda.current_device = lambda: device
    for name in ("set_device", "synchronize", "empty_cache", "current_stream"):
        setattr(torch.cuda, name, _nothing())
    make_empty = torch.empty

    def empty(*args: Any, **kwargs: Any) -> Any:
        """Where OpenRLHF's worker receives a weight."""
        return make_empty(*args, **(kwargs | {"device": "cpu"} if kwargs.get("device") == "cuda" else kwargs))

    torch.empty = empty
    if any(path.endswith("/standin") for path in sys.path):
        torch.compile = _run_uncompiled
        sys.modules["torch._inductor.lowering"] = None  # type: ignore[assignment]  # DeepSpeed does without


def _run_uncompiled(function: Any = None, **_options: Any) -> Any:
    """In place of `torch.compile` beside the stand-in for vLLM: to import the compiler takes each process seconds."""
    return function if function is not None else _run_uncompiled


def _adapt_reductions(reductions: Any) -> None:
    """The `IPC handle` of a tensor is its pickled values: bytes pass through vLLM's messages as they are."""
    import pickle

    def reduce_tensor(tensor: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # OpenRLHF's worker writes a device index into the seventh place.
        return _restored, (pickle.dumps(tensor.detach().clone()), *[None] * 6)

    reductions.reduce_tensor = reduce_tensor


def _restored(values: bytes, *_rest: Any) -> Any:
    import pickle

    return pickle.loads(values)


class _GlooCommunicator:
    """In place of vLLM's PyNcclCommunicator: broadcasts among the members of a StatelessProcessGroup."""

    def __init__(self, group: Any, device: Any = None) -> None:
        from datetime import timedelta

        import torch.distributed as dist

        self.available, self.disabled = True, False
        self._options = dist.BroadcastOptions
        self._group: Any = dist.ProcessGroupGloo(
            group.store, group.rank, group.world_size, timedelta(seconds=_TIMEOUT_S)
        )

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        """Gives every member the tensor of member `src`."""
        options = self._options()
        options.rootRank, options.rootTensor = src, 0
        self._group.broadcast([tensor], options).wait()


def _adapt_pynccl(pynccl: Any) -> None:
    pynccl.PyNcclCommunicator = _GlooCommunicator


def _adapt_standin(vllm: Any) -> None:
    """The stand-in is one module under all of vLLM's names."""
    if hasattr(vllm, "PyNcclCommunicator"):
        _adapt_pynccl(vllm)


def _adapt_linear(layers: Any) -> None:
    """vLLM for CPUs packs a weight into a form of its own and drops it; weight sync needs it where it was."""

    def keep(layer: Any, remove_weight: bool = False) -> None:
        import torch

        layer.cpu_linear = torch.nn.functional.linear

    layers.dispatch_cpu_unquantized_gemm = keep


def _adapt_model_config(config: Any) -> None:
    """The language model inside one that sees has no architecture of its own; on a CPU vLLM looks for its first."""
    asked = config.ModelConfig.using_transformers_backend

    def using_transformers_backend(self: Any) -> bool:
        return bool(self.architectures and asked(self))

    config.ModelConfig.using_transformers_backend = using_transformers_backend


def _adapt_runner(runner: Any) -> None:
    """A request with a seed has a generator, which vLLM rewinds on a GPU where it drops a draw; a CPU's cannot be."""

    class Generator(runner.torch.Generator):  # type: ignore[misc]  # torch is not known before it is imported
        def get_offset(self) -> int:
            return 0

        def set_offset(self, offset: int) -> None:
            pass

    runner.torch.Generator = Generator


def _adapt_deepspeed(communication: Any) -> None:
    """Without its operation over shared memory, which it would compile for a minute first, DeepSpeed uses gloo."""
    communication.build_shm_op = lambda: None


def _adapt_adam(fused_adam: Any) -> None:
    """DeepSpeed's Adam in one kernel, which it would compile for a minute, has the formula of torch's AdamW."""
    adamw: Any = sys.modules["torch"].optim.AdamW

    class FusedAdam(adamw):  # type: ignore[misc]  # torch is not known before it is imported
        def __init__(self, params: Any, *, adam_w_mode: bool = True, **settings: Any) -> None:
            assert adam_w_mode, settings
            super().__init__(params, **settings)

    fused_adam.FusedAdam = FusedAdam


def _adapt_strategy(strategy: Any) -> None:
    """OpenRLHF names `cuda` as the place of the mean of weights."""
    average = strategy.DeepspeedStrategy.moving_average

    def moving_average(self: Any, model: Any, mean: Any, beta: float, _device: str) -> None:
        average(self, model, mean, beta, "cpu")

    strategy.DeepspeedStrategy.moving_average = moving_average


def _adapt_gpu_id(utils: Any) -> None:
    """All processes share the one device there is."""
    utils.get_physical_gpu_id = lambda: "cpu"


_ADAPTATIONS: dict[str, Callable[[Any], None]] = {
    "torch": _adapt_torch,
    "torch.multiprocessing.reductions": _adapt_reductions,
    "vllm": _adapt_standin,
    "vllm.distributed.device_communicators.pynccl": _adapt_pynccl,
    "vllm.model_executor.layers.utils": _adapt_linear,
    "vllm.config.model": _adapt_model_config,
    "vllm.v1.worker.gpu_model_runner": _adapt_runner,
    "openrlhf.trainer.ray.utils": _adapt_gpu_id,
    "openrlhf.utils.deepspeed.deepspeed": _adapt_strategy,
    "deepspeed.comm.torch": _adapt_deepspeed,
    "deepspeed.ops.adam.fused_adam": _adapt_adam,
}


class _AdaptingLoader(Loader):
    """Runs a module's own loader, then its adaptation."""

    def __init__(self, loader: Any, adapt: Callable[[Any], None]) -> None:
        self._loader = loader
        self._adapt = adapt

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._adapt(module)

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of a loader: sources, resources, its file."""
        return getattr(self._loader, name)


class _Finder(MetaPathFinder):
    """Finds what is adapted where Python finds it, with a loader that adapts it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        adapt = _ADAPTATIONS.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if adapt is not None else None
        if spec is None or spec.loader is None or adapt is None:
            return None
        spec.loader = _AdaptingLoader(spec.loader, adapt)
        return spec


def _load_next() -> None:
    """Runs the `sitecustomize` that this one stands before, as of `rlf chaos`."""
    rest = [path for path in sys.path if path != __file__.rpartition("/")[0]]
    spec = PathFinder.find_spec(__name__, rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_load_next()
