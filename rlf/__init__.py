"""A declarative workbench for reinforcement learning of tool-using language models."""

__version__ = "0.1.0"

__all__ = ["__version__"]
