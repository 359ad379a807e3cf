"""As DeepSeek's: the same tokens, and the same names."""

import runpy
from pathlib import Path

globals().update(runpy.run_path(str(Path(__file__).with_name("deepseek.py"))))
