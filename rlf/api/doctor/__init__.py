"""The findings of `rlf doctor`."""
