"""`ScriptedPolicy`: plays written turns through the real rollout loop, for tests of tools, rewards and formats.

    policy = ScriptedPolicy(tokenizer, [chat.write_call(call) + "<|im_end|>", "It is 42.<|im_end|>"])
    trajectory = await play(Rollout("t", task, 0, seed=0), Setting(policy, chat, tools, limits, sampling))

Its `requests` hold what the policy was shown before each turn.
"""

from rlf.rollout.scripted import Line, ScriptedPolicy

__all__ = ["Line", "ScriptedPolicy"]
