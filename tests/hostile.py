"""Text and exceptions that code of others may produce, each by its name; read by tests and by classes that they name.

The standard library alone, so that the sandbox can run it too.
"""

HALF = "half \ud83d"
NAME = "no file 'caf\udce9.txt'"
TEXTS = {"half": HALF, "name": NAME, "nul": "a\0b", "pair": "\ud83d\ude00", "long": "\udce9" * 300_000}


class _NoText(ValueError):
    def __str__(self):
        raise RuntimeError(NAME)


class _Exits(ValueError):
    def __str__(self):
        raise SystemExit(NAME)


class _Word(str):
    def __str__(self):
        raise RuntimeError(NAME)

    __len__ = __getitem__ = isascii = encode = __format__ = __str__


class _Subclass(ValueError):
    def __str__(self):
        return _Word(NAME)


class _Notes(ValueError):
    @property
    def __notes__(self):
        raise RuntimeError(NAME)


class _Attributes(ValueError):
    def __getattribute__(self, name):
        raise RuntimeError(NAME)


class _Meta(type):
    @property
    def __name__(cls):
        raise RuntimeError(NAME)

    def __getattribute__(cls, name):
        raise RuntimeError(NAME)


class _Metaclass(ValueError, metaclass=_Meta):
    pass


def _noted():
    fault = ValueError("noted")
    fault.__notes__ = [NAME, 7, "x" * 300_000]
    return fault


def _deep():
    fault = ValueError(NAME)
    for _ in range(900):
        fault = ExceptionGroup("deep", [fault])
    return fault


FAULTS = {
    **{name: lambda text=text: ValueError(text) for name, text in TEXTS.items()},
    "os": lambda: FileNotFoundError(2, "No such file", "caf\udce9.txt"),
    "key": lambda: KeyError(NAME),
    "bytes": lambda: UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, NAME),
    "no_text": _NoText,
    "exits": _Exits,
    "subclass": _Subclass,
    "notes": _Notes,
    "attributes": lambda: _Attributes(NAME),
    "metaclass": lambda: type.__call__(_Metaclass, NAME),
    "noted": _noted,
    "group": lambda: ExceptionGroup(NAME, [ValueError(NAME), _NoText(), OSError("b")]),
    "deep": _deep,
    "class": lambda: type("N" * 300_000, (ValueError,), {})(NAME),
    "exit": lambda: SystemExit(NAME),
    "stop": lambda: StopIteration(NAME),
    "base": lambda: BaseException(NAME),
}


def fail(what: str) -> str:
    """Raise an exception.

    Args:
        what: its name.
    """
    raise FAULTS[what]()


async def fail_async(what: str) -> str:
    """Raise an exception.

    Args:
        what: its name.
    """
    raise FAULTS[what]()


def repeat(what: str) -> str:
    """Raise a text.

    Args:
        what: the text.
    """
    raise ValueError(what)


def echo(what: str):
    """Return a text inside a list.

    Args:
        what: the text.
    """
    return {"a": what}


def give(what: str):
    """Return a text, also as a key and inside a list.

    Args:
        what: its name.
    """
    text = TEXTS[what][:1000]
    return {text: [text], "as": text}


def use(what: str):
    """Return what was used up, and where.

    Args:
        what: its name.
    """
    from rlf.types import ToolOutput

    usage = {"half": {HALF: 1}, "nan": {"s": float("nan")}, "text": {"s": HALF}, "list": [HALF], "huge": {"s": 10**400}}
    return ToolOutput("a", usage=usage[what], isolation=HALF)


def say(what: str) -> str:
    """Return a text.

    Args:
        what: its name.
    """
    return TEXTS[what]


class Kept:
    """Fails in its constructor."""

    def __init__(self):
        raise OSError(NAME)

    def __call__(self, what: str) -> str:
        """Nothing is called."""
        return ""


class World:
    """Fails where it is told to, with what it is told."""

    def __init__(self, phase="", what=""):
        self.phase, self.what = phase, what
        self.state_now = {}
        self._at("init")

    def _at(self, phase):
        if self.phase == phase:
            raise FAULTS[self.what]()

    def reset(self):
        self._at("reset")
        return TEXTS["half"] + TEXTS["nul"]

    def act(self, what: str) -> str:
        """Act.

        Args:
            what: how.
        """
        if what in FAULTS:
            raise FAULTS[what]()
        self.state_now = {TEXTS["name"]: TEXTS["half"]}
        return TEXTS["half"]

    def reply(self, text):
        self._at("reply")
        self.done = True
        return TEXTS["name"]

    def state(self):
        self._at("state")
        return self.state_now

    def score(self):
        self._at("score")
        return {TEXTS["half"]: 1.0}

    def close(self):
        self._at("close")
