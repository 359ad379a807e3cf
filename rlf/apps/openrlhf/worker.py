"""OpenRLHF's extension of vLLM's workers, for a policy with adapters. vLLM imports it in each of its workers."""

from __future__ import annotations

from typing import Any

from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap

from rlf.apps.openrlhf.policy import SCALE, AdapterMerge


class MergingWorker(WorkerWrap):  # type: ignore[misc]  # OpenRLHF is not typed
    """Receives weights as OpenRLHF does, and loads them merged. vLLM adds it to the bases of its own worker."""

    def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        """Takes one weight that is broadcast. `empty_cache` is true of the last one."""
        merge = self._adapter_merge()
        super().update_weight(name, dtype, shape, empty_cache)
        if empty_cache:
            merge.check_done()

    def update_weight_cuda_ipc(
        self, name: str, dtype: Any, shape: Any, ipc_handles: Any = None, empty_cache: bool = False
    ) -> None:
        """Takes one weight out of memory of the GPU that both share. `empty_cache` is true of the last one."""
        merge = self._adapter_merge()
        super().update_weight_cuda_ipc(name, dtype, shape, ipc_handles, empty_cache)
        if empty_cache:
            merge.check_done()

    def _adapter_merge(self) -> AdapterMerge:
        """The merge that stands before the model's own `load_weights` from the first update on."""
        model = self.model_runner.model
        if not isinstance(model.load_weights, AdapterMerge):
            model.load_weights = AdapterMerge(model.load_weights, self.vllm_config.additional_config[SCALE])
        merge: AdapterMerge = model.load_weights
        return merge
