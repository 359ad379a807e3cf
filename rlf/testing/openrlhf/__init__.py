"""Modules that let the real, unmodified OpenRLHF run on a machine without a GPU, as two folders for PYTHONPATH.

`shim` goes before everything else: a `sitecustomize` that adapts torch, vLLM and DeepSpeed to the CPU in every process
of a job, and an importable `flash_attn`. `standin` holds a package `vllm` that samples with transformers in process,
for jobs that need not try vLLM itself. Neither is imported by rlf; `rlf rehearse` puts them on the path of its jobs.
"""
