"""A job for GPUs, run for real on this machine."""
