"""Questions that a short program answers and a head does not: `builtin:programs/train`, `builtin:programs/heldout`."""

__all__ = ["python_disabled"]


def python_disabled(code: str) -> str:
    """Control: an interpreter that is out of order."""
    raise ValueError("out of order")
