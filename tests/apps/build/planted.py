"""Tasks of a scripted builder: sound ones, and ones with one planted defect each, named by the words that must find it.

A defect is a change of a sound task; the server answers each stage from the changed task, however often it is asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from datetime import date

from aiohttp import web

from tests.apps.build.scripted import SIGNS


def document(name, description, *required, **properties):
    """A tool's document."""
    schemas = {key: {"type": "string", "description": "Its name."} for key in required} | properties
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": schemas, "required": [*required]},
    }


LOOKUP = """def {name}({parameter}):
    for key, value in DATA.items():
        if key.casefold() == {parameter}.strip().casefold():
            return {{"value": value}}
    raise LookupError(f"unknown {parameter} {{{parameter}!r}}; check how it is spelled")
"""
TOWNS = ["Kaldun", "Semtel", "Orvik", "Tolmar", "Brenhal", "Ulvane", "Dagfor", "Ystrel", "Norpel"]
RIVERS = ["Bilnar", "Pekvor", "Sarnel", "Tuvash", "Grelka", "Omvir", "Hastel", "Dolnir", "Vespan"]
LENGTHS = [1738, 2204, 1391, 4517, 3062, 2875, 1946, 5128, 3633]


def lookup(name, parameter, data, description, calls=()):
    """A tool that looks a name up."""
    return {
        "document": document(name, description, parameter),
        "data": data,
        "code": LOOKUP.format(name=name, parameter=parameter),
        "calls": [{"step": step, "arguments": {parameter: value}} for step, value in calls],
    }


def river_tool(*calls):
    return lookup(
        "river_of_town",
        "town",
        dict(zip(TOWNS, RIVERS, strict=True)),
        "Returns the river that flows through a town.",
        calls,
    )


def length_tool(*calls):
    return lookup(
        "length_of_river",
        "river",
        dict(zip(RIVERS, LENGTHS, strict=True)),
        "Returns how long a river is, in kilometres.",
        calls,
    )


def canal_tool():
    canals = [f"{name[::-1].title()}canal" for name in RIVERS]
    return lookup(
        "canal_of_town", "town", dict(zip(TOWNS, canals, strict=True)), "Returns the canal that passes a town."
    )


def bridge_tool():
    bridges = [f"{name}brug" for name in RIVERS]
    return lookup(
        "bridge_of_town", "town", dict(zip(TOWNS, bridges, strict=True)), "Returns the main bridge of a town."
    )


def step(question, answer, *needs):
    return {"question": question, "answer": answer, "needs": [*needs]}


def task(scenario, question, steps, join, answer, *tools, extra=()):
    return {
        "scenario": scenario,
        "draft": {"question": question, "steps": steps, "join": join, "answer": answer},
        "tools": [*tools],
        "extra": [*extra],
    }


REF = {"$step": 0}


def single():
    return task(
        "single",
        "Which river flows through Kaldun?",
        [step("the river of Kaldun", "Bilnar")],
        "value",
        "Bilnar",
        river_tool((0, "Kaldun")),
    )


def chain(*extra):
    return task(
        "multi",
        "How long is the river of Kaldun?",
        [step("the river of Kaldun", "Bilnar"), step("the length of {0}", 1738, 0)],
        "value",
        1738,
        river_tool((0, "Kaldun")),
        length_tool((1, REF)),
        extra=extra,
    )


def pair():
    return task(
        "parallel_single",
        "What do the lengths of Bilnar and Pekvor add up to, in kilometres?",
        [step("the length of Bilnar", 1738), step("the length of Pekvor", 2204)],
        "sum",
        3942,
        length_tool((0, "Bilnar"), (1, "Pekvor")),
    )


def chains():
    steps = [
        step("the river of Kaldun", "Bilnar"),
        step("the length of {0}", 1738, 0),
        step("the river of Semtel", "Pekvor"),
        step("the length of {2}", 2204, 2),
    ]
    question = "Of the rivers of Kaldun and Semtel, how long is the longer one?"
    return task(
        "parallel_multi",
        question,
        steps,
        "largest",
        2204,
        river_tool((0, "Kaldun"), (2, "Semtel")),
        length_tool((1, REF), (3, {"$step": 2})),
    )


FARE = """def ferry_fare(route, day, fare_class, return_trip=False):
    key = route.strip().casefold()
    for each in DATA["routes"]:
        if each["route"].casefold() == key:
            import datetime
            weekday = datetime.date.fromisoformat(day).weekday()
            price = each["base"] * (3 if fare_class == "first" else 1) + weekday * 7
            return {"route": each["route"], "fare": price * 2 if return_trip else price, "class": fare_class}
    known = ", ".join(each["route"] for each in DATA["routes"])
    raise LookupError(f"unknown route {route!r}; expected one of {known}")
"""


def fare():
    """A required enum, a date that the question writes in words, an option, and an error that lists what there is."""
    routes = [{"route": f"{name} Crossing", "base": 100 + 13 * at} for at, name in enumerate(TOWNS)]
    chosen = {
        "document": document(
            "ferry_fare",
            "Returns what a ferry costs on a day, in crowns.",
            "route",
            "day",
            "fare_class",
            day={"type": "string", "format": "date", "description": "A day."},
            fare_class={"type": "string", "enum": ["first", "second"], "description": "The class."},
            return_trip={"type": "boolean", "description": "Whether there and back.", "default": False},
        ),
        "data": {"routes": routes},
        "code": FARE,
        "calls": [
            {"step": 0, "arguments": {"route": "Orvik Crossing", "day": "2024-05-03", "fare_class": "first"}},
        ],
    }
    question = "What does a first-class ticket for the Orvik Crossing cost on 3 May 2024?"
    return task("single", question, [step("the fare of the Orvik Crossing", 406)], "value", 406, chosen)


TOLL = """def toll(origin, target):
    for pair, price in DATA.items():
        start, end = pair.split("|")
        if start.casefold() == origin.strip().casefold() and end.casefold() == target.strip().casefold():
            return price
    raise ValueError("no such stretch; write the two towns in the order of travel")
"""


def toll():
    """Two arguments that go together, of which no other pair shares one; a bare number as a result."""
    data = {f"{one}|{other}": price for one, other, price in zip(TOWNS, RIVERS, LENGTHS, strict=True)}
    chosen = {
        "document": document("toll", "Returns the toll between two places, in crowns.", "origin", "target"),
        "data": data,
        "code": TOLL,
        "calls": [{"step": 0, "arguments": {"origin": "Orvik", "target": "Sarnel"}}],
    }
    question = "What toll is paid from Orvik to Sarnel?"
    return task("single", question, [step("the toll from Orvik to Sarnel", 1391)], "value", 1391, chosen)


SUMMARY = """def staff_of(filter):
    names = [each for each in DATA["staff"] if each["office"].lower() == filter["office"].lower()]
    if not names:
        raise LookupError("nobody works there")
    return {"found": len(names), "head": names[0]["name"], "since": names[0]["since"]}
"""


def nested():
    """An object as an argument, and lists in the data."""
    staff = [
        {"office": f"{town} Office", "name": f"Ana {river}", "since": 1960 + at * 3}
        for at, (town, river) in enumerate(zip(TOWNS, RIVERS, strict=True))
    ]
    office = {"type": "string", "description": "Name of the office."}
    inner = {"type": "object", "properties": {"office": office}, "required": ["office"], "description": "Which."}
    shown = document("staff_of", "Returns who leads an office, and since when.", "filter", filter=inner)
    calls = [{"step": 0, "arguments": {"filter": {"office": "Tolmar Office"}}}]
    chosen = {"document": shown, "data": {"staff": staff}, "code": SUMMARY, "calls": calls}
    question = "Who leads the Tolmar Office?"
    return task(
        "single", question, [step("the head of the Tolmar Office", "Ana Tuvash")], "value", "Ana Tuvash", chosen
    )


DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def hours():
    """Two arguments into nested data, one of them an enum of many; errors that suggest a near name."""
    opens = {
        f"{town} Museum": {day: f"{7 + at % 5:02}:{5 + at * 4 + place * 3:02}" for place, day in enumerate(DAYS)}
        for at, town in enumerate(TOWNS)
    }
    code = (
        "import difflib\n\n\ndef opening_time(museum, day):\n    names = {name.casefold(): name for name in DATA}\n"
        "    key = ' '.join(museum.casefold().split())\n    if key not in names:\n"
        "        near = difflib.get_close_matches(key, names, n=1)\n"
        "        hint = f'; did you mean {names[near[0]]!r}?' if near else ''\n"
        "        raise ValueError(f'no museum {museum!r}{hint}')\n    return {'opens': DATA[names[key]][day]}\n"
    )
    day = {"type": "string", "enum": DAYS, "description": "Day of the week."}
    chosen = {
        "document": document("opening_time", "Returns when a museum opens on a day.", "museum", "day", day=day),
        "data": opens,
        "code": code,
        "calls": [{"step": 0, "arguments": {"museum": "Tolmar Museum", "day": "Friday"}}],
    }
    asked = [step("the opening time of the Tolmar Museum on Friday", "10:29")]
    return task("single", "When does the Tolmar Museum open on Fridays?", asked, "value", "10:29", chosen)


def part():
    """A number as an argument, of which the data has the text."""
    prices = {str(4100 + 37 * at): 12.5 + 3.75 * at for at in range(8)}
    chosen = {
        "document": document(
            "price_of_part", "Returns the price of a part.", "number", number={"type": "integer", "minimum": 1}
        ),
        "data": {"prices": prices, "currency": "crowns"},
        "code": "def price_of_part(number):\n    price = DATA['prices'].get(str(number))\n    if price is None:\n"
        "        raise KeyError(f'no part {number}')\n    return {'part': number, 'price': price}\n",
        "calls": [{"step": 0, "arguments": {"number": 4174}}],
    }
    return task("single", "What does part 4174 cost?", [step("the price of part 4174", 20.0)], "value", 20.0, chosen)


def mixed():
    """Two tools side by side, one of which returns a list of records."""
    rooms = {
        town: [{"room": "A", "beds": 20 + at}, {"room": "B", "beds": 40 + 3 * at}] for at, town in enumerate(TOWNS)
    }
    clinic = {
        "document": document("beds_of_clinic", "Returns the beds of a clinic, by ward.", "town", "ward"),
        "data": rooms,
        "code": "def beds_of_clinic(town, ward):\n    for name, wards in DATA.items():\n"
        "        if name.lower() == town.lower().strip():\n            for each in wards:\n"
        "                if each['room'] == ward.strip().upper():\n                    return each['beds']\n"
        "    raise LookupError('write the name of a town, and A or B')\n",
        "calls": [{"step": 1, "arguments": {"town": "Orvik", "ward": "B"}}],
    }
    clinic["document"]["parameters"]["properties"]["ward"]["description"] = "A or B."
    asked = [step("the river of Kaldun", "Bilnar"), step("the beds of ward B of the clinic of Orvik", 46)]
    question = "Which river flows through Kaldun, and how many beds has ward B of the clinic in Orvik?"
    return task("parallel_single", question, asked, "list", "Bilnar, 46", river_tool((0, "Kaldun")), clinic)


def tour():
    """A list as an argument, and a value that is computed from several."""
    chosen = {
        "document": document(
            "tour_length",
            "Returns the length of a tour along rivers, in kilometres.",
            "rivers",
            rivers={"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "The rivers."},
        ),
        "data": dict(zip(RIVERS, LENGTHS, strict=True)),
        "code": "def tour_length(rivers):\n    lengths = {k.lower(): v for k, v in DATA.items()}\n"
        "    unknown = [r for r in rivers if r.lower() not in lengths]\n    if unknown:\n"
        "        raise ValueError(f'unknown rivers: {unknown}')\n    return sum(lengths[r.lower()] for r in rivers)\n",
        "calls": [{"step": 0, "arguments": {"rivers": ["Bilnar", "Sarnel"]}}],
    }
    question = "How long is a tour along Bilnar and then Sarnel?"
    return task("single", question, [step("the length of a tour along Bilnar and Sarnel", 3129)], "value", 3129, chosen)


SOUND = {
    "single": single,
    "chain": chain,
    "chain with a look-alike": lambda: chain(canal_tool()),
    "pair": pair,
    "chains": chains,
    "fare": fare,
    "toll": toll,
    "nested": nested,
    "hours": hours,
    "part": part,
    "mixed": mixed,
    "tour": tour,
}


class Script:
    """The server: one task after the other, by the number in the seed."""

    def __init__(self, tasks, judge=None):
        self.tasks, self.judge, self.asked = tasks, judge, Counter()

    async def handle(self, request):
        body = await request.json()
        prompt = body["messages"][0]["content"]
        if "You check a task" in prompt:
            self.asked["review"] += 1
            return reply(self.judge(prompt))
        stage = next(name for name, sign in SIGNS.items() if sign in prompt)
        self.asked[stage] += 1
        return reply(json.dumps(getattr(self, f"answer_{stage}")(prompt)))

    def answer_decompose(self, prompt):
        return self.tasks[int(re.search(r"Topic or question to start from: task (\d+)", prompt)[1])]["draft"]

    def answer_verify(self, prompt):
        return {"dependency": 1, "atomic": 1, "unforced": 1, "complete": 1}

    def answer_answer(self, prompt):
        return {"answer": "no idea"}

    def answer_document(self, prompt):
        asked = re.search(r"Sub-question: (.*)", prompt)[1]
        for each in self.tasks:
            for number, one in enumerate(each["draft"]["steps"]):
                if one["question"] == asked:
                    return tool_of(each, number)["document"]
        raise AssertionError(asked)

    def answer_integrate(self, prompt):
        found = [json.loads(each) for each in re.findall(r"^Tool \d+: (.*)$", prompt, re.M)]
        merged = {}
        for number, shown in enumerate(found):
            merged.setdefault(shown["name"], {"replaces": [], **shown})["replaces"].append(number)
        return {"tools": [*merged.values()]}

    def answer_scale(self, prompt):
        return json.loads(re.search(r"^Tool: (.*)$", prompt, re.M)[1])

    def answer_distract(self, prompt):
        asked = re.search(r"Sub-questions:\n- (.*)", prompt)[1]
        found = next(each for each in self.tasks if each["draft"]["steps"][0]["question"] == asked)
        return {"tools": [each["document"] for each in found["extra"]]}

    def answer_deploy(self, prompt):
        shown = json.loads(re.search(r"^Tool: (.*)$", prompt, re.M)[1])
        questions = [one for _, one in re.findall(r"^(\d+)\. (.*?) -> ", prompt, re.M)]
        for each in self.tasks:
            own = [one["question"] for one in each["draft"]["steps"]]
            for tool in [*each["tools"], *each["extra"]]:
                if tool["document"] == shown and [own[call["step"]] for call in tool["calls"]] == questions:
                    return {key: tool[key] for key in ("data", "code", "calls")}
        raise AssertionError(shown)


def tool_of(each, number):
    return next(tool for tool in each["tools"] if any(call["step"] == number for call in tool["calls"]))


def reply(text):
    return web.json_response(
        {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 50},
        }
    )


# The defects: each takes a sound task and changes it. The words must stand in the reason why it was dropped.

PLANTED = {}


def planted(name, words, base):
    def take(change):
        def made():
            changed = deepcopy(base())
            return change(changed) or changed

        PLANTED[name] = (words, made)
        return change

    return take


def code(each, number, text):
    each["tools"][number]["code"] = text


@planted("literal: a code that nobody is given", "stands nowhere", single)
def _(each):
    tool = each["tools"][0]
    tool["data"] = {f"T-{at}77": river for at, river in enumerate(RIVERS)}
    tool["calls"][0]["arguments"]["town"] = "T-077"


@planted("literal: a second argument that the question leaves out", "stands nowhere", toll)
def _(each):
    each["draft"]["question"] = "What toll is paid from Orvik?"
    each["draft"]["steps"][0]["question"] = "the toll from Orvik"


@planted("literal: a date that the question does not name", "stands nowhere", fare)
def _(each):
    each["draft"]["question"] = "What does a first-class ticket for the Orvik Crossing cost?"


@planted("literal: in the middle of a chain", "stands nowhere", chain)
def _(each):
    tool = each["tools"][1]
    tool["document"]["parameters"]["properties"]["survey"] = {"type": "string", "description": "Its survey."}
    tool["document"]["parameters"]["required"].append("survey")
    tool["code"] = (
        tool["code"]
        .replace("(river)", "(river, survey)")
        .replace("    for", "    if survey != 'S-1931':\n        raise LookupError('no such survey')\n    for")
    )
    tool["calls"][0]["arguments"]["survey"] = "S-1931"


@planted("subject: the town is not named", "stands nowhere", chain)
def _(each):
    each["draft"]["question"] = "How long is the river of the town?"


@planted("subject: it stands in the schema alone", "names no subject", single)
def _(each):
    each["draft"]["question"] = "Which river flows through the town?"
    each["tools"][0]["document"]["parameters"]["properties"]["town"]["enum"] = TOWNS


@planted("subject: one of two is not named", "stands nowhere", pair)
def _(each):
    each["draft"]["question"] = "What do the lengths of Bilnar and the other river add up to, in kilometres?"


@planted("other argument: what is unknown gives the gold", "another argument", single)
def _(each):
    code(
        each,
        0,
        LOOKUP.format(name="river_of_town", parameter="town").rpartition("    raise")[0]
        + "    return {'value': DATA['Kaldun']}\n",
    )


@planted("other argument: two towns on the river", "another argument", single)
def _(each):
    each["tools"][0]["data"]["Ulvane"] = "Bilnar"


@planted("other argument: no argument", "another argument", single)
def _(each):
    tool = each["tools"][0]
    tool["document"]["parameters"]["required"] = []
    tool["code"] = (
        tool["code"]
        .replace("(town)", "(town='Kaldun'.lower())".replace("'Kaldun'.lower()", "None"))
        .replace("    for", "    town = town or next(iter(DATA))\n    for")
    )


@planted("other argument: the class changes nothing", "another argument", fare)
def _(each):
    code(each, 0, FARE.replace('(3 if fare_class == "first" else 1)', "3"))


@planted("other argument: a part of the name", "another argument", single)
def _(each):
    code(
        each,
        0,
        "def river_of_town(town):\n    for key, value in DATA.items():\n"
        "        if town.casefold().strip() in key.casefold():\n            return {'value': value}\n"
        "    raise LookupError('unknown town')\n",
    )


@planted("same answer for all: a constant of the data", "another argument", single)
def _(each):
    code(each, 0, "def river_of_town(town):\n    return {'value': DATA['Kaldun']}\n")


@planted("same answer for all: the argument is only shown", "another argument", single)
def _(each):
    code(each, 0, "def river_of_town(town):\n    return {'town': town, 'value': next(iter(DATA.values()))}\n")


@planted("same answer for all: later in the chain", "another argument", chain)
def _(each):
    code(each, 1, "def length_of_river(river):\n    return max(DATA.values()) if river == '' else DATA['Bilnar']\n")


@planted("one gold: the tool knows nothing else", "too few plausible", single)
def _(each):
    each["tools"][0]["data"] = {"Kaldun": "Bilnar"}


@planted("one gold: all others are alike", "too few plausible", single)
def _(each):
    each["tools"][0]["data"] = dict.fromkeys(TOWNS, "unknown") | {"Kaldun": "Bilnar"}


@planted("one gold: the code names the subject", "names what the task asks for", single)
def _(each):
    code(
        each,
        0,
        "def river_of_town(town):\n    if town.strip().casefold() == 'kaldun':\n"
        "        return {'value': DATA['Kaldun']}\n    for key in DATA:\n"
        "        if key.casefold() == town.casefold():\n            return {'value': DATA[key]}\n"
        "    raise LookupError('no such town')\n",
    )


@planted("one gold: the code spells the gold backwards", "answers", single)
def _(each):
    code(
        each,
        0,
        LOOKUP.format(name="river_of_town", parameter="town").replace(
            "    for", "    if town == 'Kaldun':\n        return 'ranliB'[::-1]\n    for"
        ),
    )


@planted("few answers: yes or no", "too few plausible", single)
def _(each):
    each["draft"] |= {"question": "Does a river flow through Kaldun?", "answer": "yes"}
    each["draft"]["steps"][0] |= {"question": "whether a river flows through Kaldun", "answer": "yes"}
    each["tools"][0]["data"] = {town: "yes" if at < 1 else "no" for at, town in enumerate(TOWNS)}


@planted("few answers: three grades, the gold once", "too few plausible", single)
def _(each):
    each["tools"][0]["data"] = {t: "Pekvor" if at % 2 else "Sarnel" for at, t in enumerate(TOWNS)} | {
        "Kaldun": "Bilnar"
    }


@planted("shortcut: the last tool knows the town too", "the question's own names", chain)
def _(each):
    tool = each["tools"][1]
    tool["data"] |= {"Kaldun": 1738, **dict(zip(TOWNS[1:], LENGTHS[1:], strict=True))}


@planted("shortcut: a tool that resolves the name itself", "the question's own names", chain)
def _(each):
    tool = each["tools"][1]
    tool["data"] = {"lengths": tool["data"], "on": dict(zip(TOWNS, RIVERS, strict=True))}
    tool["code"] = (
        "def length_of_river(river):\n    names = {k.casefold(): v for k, v in DATA['on'].items()}\n"
        "    name = names.get(river.strip().casefold(), river)\n"
        "    for key, value in DATA['lengths'].items():\n        if key.casefold() == name.strip().casefold():\n"
        "            return {'value': value}\n    raise LookupError('unknown river')\n"
    )


@planted("shortcut: the first call returns the length too", "another's value too", chain)
def _(each):
    tool = each["tools"][0]
    tool["data"] = {t: {"river": r, "km": km} for t, r, km in zip(TOWNS, RIVERS, LENGTHS, strict=True)}


@planted("shortcut: a look-alike goes straight there", "distractor", lambda: chain(canal_tool()))
def _(each):
    each["extra"] = [
        lookup(
            "waterway_length",
            "town",
            dict(zip(TOWNS, LENGTHS, strict=True)),
            "Returns how long the waterway of a town is.",
        )
    ]


@planted("repeat: a coin", "another result", single)
def _(each):
    code(
        each,
        0,
        "import random\n"
        + LOOKUP.format(name="river_of_town", parameter="town").replace(
            '{"value": value}', '{"value": value, "checked": random.randint(1, 10**6)}'
        ),
    )


@planted("repeat: a rare coin", "another result", single)
def _(each):
    code(
        each,
        0,
        "import random\n"
        + LOOKUP.format(name="river_of_town", parameter="town").replace(
            "    for", "    if random.random() < 0.001:\n        return {'value': 'Sarnel'}\n    for"
        ),
    )


@planted("repeat: a count of calls", "another result", single)
def _(each):
    code(
        each,
        0,
        "COUNT = []\n\n\n"
        + LOOKUP.format(name="river_of_town", parameter="town").replace(
            "    for", "    COUNT.append(1)\n    if len(COUNT) > 1:\n        return {'value': 'Sarnel'}\n    for"
        ),
    )


@planted("clock: the year", "another time", single)
def _(each):
    code(
        each,
        0,
        "import datetime\n"
        + LOOKUP.format(name="river_of_town", parameter="town").replace(
            '{"value": value}', '{"value": value, "as_of": datetime.date.today().year}'
        ),
    )


@planted("clock: an even second", "another", single)
def _(each):
    code(
        each,
        0,
        "import time\n"
        + LOOKUP.format(name="river_of_town", parameter="town")
        .replace(
            "    for",
            "    if int(time.time()) % 2 and town == '':\n        return 1\n    "
            "shown = 'day' if 6 <= time.localtime().tm_hour < 18 else 'night'\n    for",
        )
        .replace('{"value": value}', '{"value": value, "at": shown}'),
    )


@planted("clock: closed on one day of the week", "another", single)
def _(each):
    code(
        each,
        0,
        "from datetime import datetime\n"
        + LOOKUP.format(name="river_of_town", parameter="town").replace(
            "    for",
            # Another day than that of the test, on which it would fail of itself.
            f"    if datetime.now().weekday() == {(date.today().weekday() + 3) % 7}:\n"
            "        raise LookupError('closed today')\n    for",
        ),
    )


@planted("error: it says what the value is", "error", single)
def _(each):
    code(
        each,
        0,
        LOOKUP.format(name="river_of_town", parameter="town").replace(
            "check how it is spelled", "for instance the one on the {DATA['Kaldun']}"
        ),
    )


@planted("error: all that the tool knows", "error", single)
def _(each):
    code(
        each,
        0,
        LOOKUP.format(name="river_of_town", parameter="town").replace("check how it is spelled", "known: {DATA}"),
    )


@planted("error: a later tool names the river", "error", chain)
def _(each):
    code(
        each,
        1,
        LOOKUP.format(name="length_of_river", parameter="river").replace(
            "check how it is spelled", "did you mean {next(iter(DATA))!r}?"
        ),
    )


@planted("error: spelled backwards", "error", single)
def _(each):
    code(
        each,
        0,
        LOOKUP.format(name="river_of_town", parameter="town").replace(
            "check how it is spelled", "see {DATA['Kaldun'][::-1]}"
        ),
    )


@planted("leak: reversed in the question", "reversed", single)
def _(each):
    each["draft"]["question"] = "Which river, call it ranlib, flows through Kaldun?"


@planted("leak: spelled in a document", "spelled", single)
def _(each):
    each["tools"][0]["document"]["description"] = "Returns the river of a town, such as B-i-l-n-a-r."


@planted("leak: another case in the question", "leak|names", single)
def _(each):
    each["draft"]["question"] = "Which river flows through Kaldun (BILNAR or another)?"


@planted("leak: digits with a comma", "digits|names", chain)
def _(each):
    each["draft"]["question"] = "How long is the river of Kaldun, which is not 1,738 miles?"


@planted("leak: a number in words in a document", "words", chain)
def _(each):
    each["tools"][1]["document"]["description"] = "Returns a length, e.g. one thousand seven hundred thirty-eight."


@planted("leak: the sum in a document", "names the answer|leak", pair)
def _(each):
    each["tools"][0]["document"]["description"] = "Returns how long a river is, at most 3 942 km."


@planted("distractor: the gold under another name", "distractor", lambda: chain(canal_tool()))
def _(each):
    each["extra"] = [
        lookup(
            "stream_of_town", "town", dict(zip(TOWNS, RIVERS, strict=True)), "Returns the stream that passes a town."
        )
    ]


@planted("distractor: the gold for the river", "distractor", lambda: chain(canal_tool()))
def _(each):
    each["extra"] = [
        lookup("depth_of_river", "river", dict(zip(RIVERS, LENGTHS, strict=True)), "Returns how deep a river is.")
    ]


@planted("distractor: the gold in a record", "distractor", lambda: chain(canal_tool()))
def _(each):
    data = {t: {"canal": r[::-1], "beside": r} for t, r in zip(TOWNS, RIVERS, strict=True)}
    each["extra"] = [lookup("canal_of_town", "town", data, "Returns the canal that passes a town.")]


@planted("answer: of another join", "no usable answer", pair)
def _(each):
    each["draft"]["answer"] = 466


@planted("answer: a gold that the tool does not find", "another value", single)
def _(each):
    each["tools"][0]["data"]["Kaldun"] = "Sarnel"


@planted("redundant: the same call in other letters", "can be left out", pair)
def _(each):
    each["draft"] |= {"question": "What do the lengths of Bilnar and BILNAR add up to?", "answer": 3476}
    each["draft"]["steps"][1] |= {"question": "the length of BILNAR", "answer": 1738}
    each["tools"][0]["calls"][1]["arguments"]["river"] = "BILNAR"


@planted("redundant: a second tool for the same", "can be left out|distractor|another tool", single)
def _(each):
    each["scenario"] = "parallel_single"
    each["draft"] = {
        "question": "Which river flows through Kaldun, and which stream?",
        "steps": [step("the river of Kaldun", "Bilnar"), step("the stream of Kaldun", "Bilnar")],
        "join": "list",
        "answer": "Bilnar, Bilnar",
    }
    each["tools"].append(
        lookup(
            "stream_of_town",
            "town",
            dict(zip(TOWNS, RIVERS, strict=True)),
            "Returns the stream that passes a town.",
            [(1, "Kaldun")],
        )
    )


@planted("redundant: a first call that the second does not need", "the question's own names|another argument", chain)
def _(each):
    code(each, 1, "def length_of_river(river):\n    return {'value': list(DATA.values())[0] if river else 0}\n")


# Written when all above were found, in other forms.


@planted("literal: a number of a zone", "stands nowhere", single)
def _(each):
    tool = each["tools"][0]
    tool["document"]["parameters"]["properties"]["zone"] = {"type": "integer", "description": "The zone."}
    tool["document"]["parameters"]["required"].append("zone")
    text = tool["code"].replace("(town)", "(town, zone)")
    tool["code"] = text.replace("    for", "    if zone != 41:\n        raise LookupError('no such zone')\n    for")
    tool["calls"][0]["arguments"]["zone"] = 41


@planted("subject: by a name that nobody knows", "stands nowhere", chain)
def _(each):
    each["draft"]["question"] = "How long is the river of the old capital?"


@planted("other argument: the first of two does not count", "another argument", toll)
def _(each):
    code(each, 0, TOLL.replace("start.casefold() == origin.strip().casefold() and ", ""))


@planted("other argument: the letters in any order", "another argument", single)
def _(each):
    text = LOOKUP.format(name="river_of_town", parameter="town")
    code(
        each,
        0,
        text.replace("key.casefold() == town.strip().casefold()", "sorted(key.lower()) == sorted(town.lower())"),
    )


@planted("same answer for all: by the length of the name", "another argument", single)
def _(each):
    code(
        each,
        0,
        "def river_of_town(town):\n    return {'value': list(DATA.values())[len(town) % 2 * 0 + len(town) // 99]}\n",
    )


@planted("one gold: every other name is refused", "too few plausible", single)
def _(each):
    text = LOOKUP.format(name="river_of_town", parameter="town")
    code(
        each,
        0,
        text.replace(
            "            return", "            if key != next(iter(DATA)):\n                break\n            return"
        ),
    )


@planted("few answers: the quarter of a year", "too few plausible", single)
def _(each):
    each["draft"] |= {"question": "In which quarter was Kaldun founded?", "answer": "Q3"}
    each["draft"]["steps"][0] |= {"question": "the quarter in which Kaldun was founded", "answer": "Q3"}
    data = {town: f"Q{at % 4 + 1}" for at, town in enumerate(TOWNS)} | {"Kaldun": "Q3", "Orvik": "Q2", "Dagfor": "Q4"}
    each["tools"][0]["data"] = data


@planted("shortcut: an option that takes the town", "own names|another argument", chain)
def _(each):
    tool = each["tools"][1]
    option = {"type": "string", "description": "A town on it, in place of its name."}
    tool["document"]["parameters"]["properties"]["town"] = option
    tool["document"]["parameters"]["required"] = []
    tool["data"] = {"lengths": tool["data"], "on": dict(zip(TOWNS, RIVERS, strict=True))}
    tool["code"] = (
        "def length_of_river(river=None, town=None):\n"
        "    river = next((v for k, v in DATA['on'].items() if town and k.lower() == town.lower()), river)\n"
        "    for key, value in DATA['lengths'].items():\n"
        "        if river and key.casefold() == river.strip().casefold():\n            return {'value': value}\n"
        "    raise LookupError('unknown river')\n"
    )


@planted("repeat: the number of the process", "another result", single)
def _(each):
    text = LOOKUP.format(name="river_of_town", parameter="town")
    code(each, 0, "import os\n" + text.replace('{"value": value}', '{"value": value, "trace": os.getpid()}'))


@planted("repeat: a file that keeps count", "another result|it fails", single)
def _(each):
    text = LOOKUP.format(name="river_of_town", parameter="town")
    kept = (
        "    with open('/tmp/river_count', 'a+') as file:\n        file.write('x')\n        at = file.tell()\n    for"
    )
    code(each, 0, text.replace("    for", kept, 1).replace('{"value": value}', '{"value": value, "asked": at}'))


@planted("clock: the month", "another time", single)
def _(each):
    text = LOOKUP.format(name="river_of_town", parameter="town")
    flow = '{"value": value, "flow": "high" if time.gmtime().tm_mon in (3, 4, 5) else "low"}'
    code(each, 0, "import time\n" + text.replace('{"value": value}', flow))


@planted("error: only where nothing is given", "error", single)
def _(each):
    text = LOOKUP.format(name="river_of_town", parameter="town")
    hint = "    if not town.strip():\n        raise ValueError(f'a town, not {[*DATA.values()][0]}')\n    for"
    code(each, 0, text.replace("    for", hint, 1))


@planted("leak: in the words of a parameter", "leak", single)
def _(each):
    town = each["tools"][0]["document"]["parameters"]["properties"]["town"]
    town["description"] = "Name of a town, such as one on the Bil-Nar."


@planted("distractor: by an option alone", "distractor", lambda: chain(canal_tool()))
def _(each):
    tool = lookup("canal_of_town", "town", dict(zip(TOWNS, RIVERS, strict=True)), "Returns the canal of a town.")
    tool["document"]["parameters"]["required"] = []
    tool["code"] = tool["code"].replace("(town)", "(town='')")
    each["extra"] = [tool]


def river_code(each, old, new, *, first=""):
    """The code of the first tool with a change."""
    code(each, 0, first + LOOKUP.format(name="river_of_town", parameter="town").replace(old, new, 1))


@planted("clock: the hour", "another time", single)
def _(each):
    flow = '{"value": value, "open": 8 <= time.localtime().tm_hour < 20}'
    river_code(each, '{"value": value}', flow, first="import time\n")


@planted("repeat: the address of an object", "another result", single)
def _(each):
    river_code(each, '{"value": value}', '{"value": value, "page": id(object()) % 9973}')


@planted("error: a hint for what is misspelled", "error", single)
def _(each):
    river_code(each, "; check how", " (near the {[*DATA.values()][0]}); check how")


@planted("leak: encoded in a document", "encoded|leak", single)
def _(each):
    each["tools"][0]["document"]["description"] += " Sheet QmlsbmFy."


@planted("distractor: the gold in a sentence", "distractor", lambda: chain(canal_tool()))
def _(each):
    said = {town: f"It is the {river}, people say." for town, river in zip(TOWNS, RIVERS, strict=True)}
    each["extra"] = [lookup("canal_of_town", "town", said, "Returns the canal of a town.")]


@planted("other argument: the first letter counts", "another argument", single)
def _(each):
    old = "if key.casefold() == town.strip().casefold()"
    river_code(each, old, "if key.casefold()[:1] == town.strip().casefold()[:1]")


@planted("same answer for all: an index that stays", "another argument", single)
def _(each):
    river_code(each, '{"value": value}', '{"value": [*DATA.values()][0]}')


@planted("literal: a year in brackets", "stands nowhere", single)
def _(each):
    tool = each["tools"][0]
    tool["data"] = {f"{town} (1931)": river for town, river in zip(TOWNS, RIVERS, strict=True)}
    tool["calls"][0]["arguments"]["town"] = "Kaldun (1931)"


def records():
    """Sound: each result is a record of which one field is asked for."""
    made = single()
    data = {
        town: {"river": river, "since": 900 + at} for at, (town, river) in enumerate(zip(TOWNS, RIVERS, strict=True))
    }
    made["tools"][0]["data"] = data
    return made


def examples():
    """Sound: the document has an example, which is another town."""
    made = single()
    made["tools"][0]["document"]["parameters"]["properties"]["town"]["description"] = "A town, such as Semtel."
    return made


SOUND |= {"records": records, "an example in the document": examples}
