"""A folder for PYTHONPATH, for jobs that need not try vLLM itself: a `vllm` on transformers. Not for import."""
