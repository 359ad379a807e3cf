"""Mistral: its special tokens; nothing follows a conversation or a result to let the model speak."""

SPECIAL = [
    *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]", "[THINK]"),
    "[/THINK]",
]
PLAIN = ["  ", "中"]
EOS = "</s>"
SPEAKS = False
