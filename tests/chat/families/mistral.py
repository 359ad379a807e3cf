"""Mistral: nothing follows a conversation or a result to let the model speak."""

SPEAKS = False
