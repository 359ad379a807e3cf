"""An OpenAI-compatible endpoint whose model writes sound towns and rivers, but for the faults that it is given."""

from __future__ import annotations

import json
import re
from collections import Counter

from aiohttp import web

TOWN = {
    "name": "river_of_town",
    "description": "Returns the river that flows through a town.",
    "parameters": {
        "type": "object",
        "properties": {"town": {"type": "string", "description": "Its name."}},
        "required": ["town"],
    },
}
RIVER = {
    "name": "length_of_river",
    "description": "Returns how long a river is, in kilometres.",
    "parameters": {
        "type": "object",
        "properties": {"river": {"type": "string", "description": "Its name."}},
        "required": ["river"],
    },
}
CODE = """def {name}({parameter}):
    for key, value in DATA.items():
        if key.casefold() == {parameter}.strip().casefold():
            return {{"value": value}}
    raise LookupError(f"unknown {{{parameter}!r}}; expected one of {{', '.join(DATA)}}")
"""


class Model:
    """Answers each stage; `faults` gives by stage what is done with the next answers."""

    def __init__(self, **faults):
        self.faults = {stage: list(found) for stage, found in faults.items()}
        self.asked = Counter()
        self.requests = []
        self.num_drafts = 0
        self.dies_after = None
        self.takes_schemas = True

    async def handle(self, request):
        body = await request.json()
        if "response_format" in body and not self.takes_schemas:
            return web.json_response({"error": {"message": "response_format: no grammar is followed"}}, status=400)
        self.requests.append(json.dumps(body["messages"]))
        if self.dies_after is not None and len(self.requests) > self.dies_after:
            return web.json_response({"error": {"message": "gone"}}, status=500)
        prompt = body["messages"][0]["content"]
        stage = next(name for name, sign in SIGNS.items() if sign in prompt)
        self.asked[stage] += 1
        faults = self.faults.get(stage, [])
        fault = faults.pop(0) if faults else None
        if fault == "rate":
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0"})
        answer = getattr(self, f"answer_{stage}")(prompt)
        text = fault(answer) if callable(fault) else fault if isinstance(fault, str) else json.dumps(answer)
        return web.json_response(
            {
                "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 50},
            }
        )

    def answer_decompose(self, prompt):
        self.num_drafts += 1
        number = int(re.search(r"Topic or question to start from: .*?(\d+)", prompt)[1])
        town, river, length = f"Towna{number}", f"Rivera{number}", 1000 + number
        if "one sub-question, answered" in prompt:
            step = {"question": f"the river of {town}", "answer": river, "needs": []}
            return {"question": f"Which river flows through {town}?", "steps": [step], "join": "value", "answer": river}
        steps = [
            {"question": f"the river of {town}", "answer": river, "needs": []},
            {"question": "the length of {0}", "answer": length, "needs": [0]},
        ]
        return {"question": f"How long is the river of {town}?", "steps": steps, "join": "value", "answer": length}

    def answer_verify(self, prompt):
        return {"dependency": 1, "atomic": 1, "unforced": 1, "complete": 1}

    def answer_answer(self, prompt):
        return {"answer": "no idea"}

    def answer_document(self, prompt):
        return RIVER if "gives: a number" in prompt else TOWN

    def answer_integrate(self, prompt):
        found = [json.loads(each) for each in re.findall(r"^Tool \d+: (.*)$", prompt, re.M)]
        return {"tools": [{"replaces": [number], **document} for number, document in enumerate(found)]}

    def answer_scale(self, prompt):
        document = json.loads(re.search(r"^Tool: (.*)$", prompt, re.M)[1])
        document["parameters"]["properties"]["unit"] = {"type": "string", "description": "A unit."}
        return document

    def answer_distract(self, prompt):
        return {
            "tools": [
                dict(TOWN, name=f"canal_of_town_{place}", description="Returns the canal of a town.")
                for place in range(2)
            ]
        }

    def answer_deploy(self, prompt):
        document = json.loads(re.search(r"^Tool: (.*)$", prompt, re.M)[1])
        (parameter,) = document["parameters"]["required"]
        steps = re.findall(r"^(\d+)\. (.*?) -> (.*)$", prompt, re.M)
        others = [
            f"{name}{place}" for place, name in enumerate(("Ulm", "Orvik", "Tolmar", "Brenhal", "Dagfor", "Ystrel"))
        ]
        lengths = "river" in document["parameters"]["required"]
        data, calls = {name: 20_011 + 7 * at if lengths else f"{name}brook" for at, name in enumerate(others)}, []
        for number, question, gold in steps:
            earlier = re.search(r"\{(\d+)\}", question)
            subject = question.rpartition(" ")[2]
            key = "Rivera" + str(json.loads(gold) - 1000) if earlier else subject
            data[key] = json.loads(gold)
            calls.append(
                {"step": int(number), "arguments": {parameter: {"$step": int(earlier[1])} if earlier else subject}}
            )
        code = CODE.format(name=document["name"], parameter=parameter)
        more = [name for name in document["parameters"]["properties"] if name != parameter]
        code = code.replace(f"({parameter})", f"({', '.join([parameter, *(f'{name}=None' for name in more)])})", 1)
        return {"data": data, "code": code, "calls": calls}


SIGNS = {
    "decompose": "You design one task",
    "verify": "Judge how a question",
    "answer": "You have no tools",
    "document": "Write the document of a tool",
    "integrate": "Merge those that are the same function",
    "scale": "Make a tool more complex",
    "distract": "look like the ones below",
    "deploy": "Write the Python function",
}
