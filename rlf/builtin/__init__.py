"""The data and models behind the `builtin:` names of a spec: the encyclopedia (tools and questions) and the tiny model.

Nothing here imports another package of rlf: the tools are plain functions and the data plain files,
used by rlf exactly as a user's own would be.
"""

__all__: list[str] = []
