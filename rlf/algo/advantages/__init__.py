"""Advantage estimators: one file each, its name the `algorithm:` of a spec; reached through `rlf.algo.ESTIMATORS`."""

__all__: list[str] = []
