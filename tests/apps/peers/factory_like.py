"""An `Env` by RL-Factory's interface, and a manager of one tool, as classes of it come."""

import json
import re
import time


class Manager:
    """One tool. A turn that says STOP breaks it, and one that says WAIT hangs."""

    def __init__(self, config):
        self.config = config
        self.functions = [
            {
                "name": "local-capital",
                "description": "The capital of a country.",
                "parameters": {
                    "type": "object",
                    "properties": {"country": {"type": "string"}},
                    "required": ["country"],
                },
            }
        ]

    def execute(self, text):
        if "STOP" in text:
            raise OSError("the manager is gone")
        if "WAIT" in text:
            time.sleep(20)
        found = re.search(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)
        if found is None:
            return "answer", text
        arguments = json.loads(found[1])["arguments"]
        return "actions", [{"role": "tool", "content": {"France": "Paris"}.get(arguments["country"], "unknown")}]


class Env:
    def __init__(self, config, centralized_actor=None):
        self.tool_manager = Manager(config)
        assert config.mcp_mode == "stdio" and config.get("tool_manager") == "qwen3"
        self.use_verify_tool = False
        self.use_process_reward = config.get("use_process_reward", False)

    def step(self, responses, tokenizer=None):
        acts = [self.tool_manager.execute(text) for text in responses]
        ends = [action == "answer" for action, _ in acts]
        said = ["" if end else result for end, (_, result) in zip(ends, acts, strict=True)]
        return said, ends, [1] * len(ends), [int(not end) for end in ends]

    def get_step_reward(self, responses, format_score=0.1):
        return [1] * len(responses)

    def verify_tool(self, data_source, solution_str, ground_truth, extra_info):
        raise NotImplementedError

    def compute_score(self, reward_rollout_wg, reward_tokenizer, tokenizer, data, if_val=False):
        assert reward_rollout_wg is None
        return self._compute_score_with_rules(data, tokenizer, if_val=if_val)

    def _compute_score_with_rules(self, data, tokenizer, if_val=False):
        return [[0.0]] * len(data)

    def _get_single_prompt_str(self, data_source, solution_str, ground_truth, extra_info, reward_tokenizer):
        raise NotImplementedError


class Capitals(Env):
    """1 for the answer in its tags, and a tenth for a result that it read."""

    def get_step_reward(self, responses, format_score=0.1):
        return [format_score if "<tool_call>" in text else float("nan") for text in responses]

    def _compute_score_with_rules(self, data, tokenizer, if_val=False):
        scores = []
        for i in range(len(data)):
            item = data[i]
            size = item.batch["prompts"].shape[-1]
            seen = item.batch["attention_mask"]
            assert tokenizer.decode(item.batch["prompts"][-seen[:size].sum() :], skip_special_tokens=True) == "Go."
            text = tokenizer.decode(item.batch["responses"][: seen[size:].sum()], skip_special_tokens=True)
            truth = item.non_tensor_batch["reward_model"]["ground_truth"]
            scores.append([float(f"<answer>{truth['target'][0]}</answer>" in text) + 0.5 * ("_response>" in text)])
        return scores


class Verified(Capitals):
    def __init__(self, config, centralized_actor=None):
        super().__init__(config, centralized_actor)
        self.use_verify_tool = True

    def verify_tool(self, data_source, solution_str, ground_truth, extra_info):
        return [data_source, len(solution_str), extra_info["index"]]

    def _compute_score_with_rules(self, data, tokenizer, if_val=False):
        return [
            [0.25, float(one.non_tensor_batch["reward_model"]["ground_truth"]["verified_results"][1])] for one in data
        ]


class Judged(Env):
    def _get_single_prompt_str(self, data_source, solution_str, ground_truth, extra_info, reward_tokenizer):
        return "Is it right?"


class Seeing(Env):
    def step(self, responses, processor, image_data):
        return [], [], [], []
