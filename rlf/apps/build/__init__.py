"""Environments built from a file: worlds, tools, tasks, and the proof of each task before it is written.

A builder (`rlf.apps.build.kinds`) makes tasks with their tools; what a task must withstand (`task`), and the page of
figures and the folder that runs take (`folder`), are the same for all of them.
"""

from rlf.apps.build.kind import BuildSettings, load_build

__all__ = ["BuildSettings", "load_build"]
