"""Attacks of hostile code, and the levels that say they stop them. `rlf doctor --attack` and the tests run this table.

The code of an attack evaluates to the text of what it achieved; `''` when nothing. What an attack does without saying
so is seen from outside (`rlf.sandbox.battery`). Codes find KEY_FILE, a file of the host's user with a secret in it,
FOLDER, its folder, PORT, where the host listens, and BYSTANDER, a process of that user with the secret in its
environment.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlf.sandbox.execution import Outcome
from rlf.sandbox.spec import Level

_CONTAINED = frozenset({Level.NAMESPACES, Level.LANDLOCK})
_LIMITED = _CONTAINED | {Level.PROCESS}
_OK = frozenset({Outcome.OK})


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing that hostile code tries."""

    name: str
    text: str
    """Python, or SQL where `sql`."""
    outcomes: frozenset[Outcome] = _OK
    """How it may end."""
    levels: frozenset[Level] = _CONTAINED
    """Those that say they stop it; at others it is never run."""
    wall_s: float = 20.0
    """Long for what ends by itself, so that a busy machine does not end it before it has tried."""
    sql: bool = False
    after: str | None = None
    """Python of a second call, which evaluates to what the first has left to it."""
    session: bool = False
    """Whether the second call is the next cell of the same session."""


_REFUSED = """
def tried(what, attempt, *arguments, **named):
    try:
        attempt(*arguments, **named)
    except (OSError, AttributeError, ValueError):
        return ""
    return what + " "
"""
_LIBC = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return "" if result == -1 else name + " "
"""


# The channel between a call and rlf is descriptor 3. `rlf.sandbox.guest.wire` describes a frame; its number is the
# request's, which hostile code finds in the frames of the code that serves it.
_CHANNEL = """
import json, os, struct, sys, time
def asked():
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("frame"), "number"):
        frame = frame.f_back
    return frame.f_locals["frame"].number
def send(head, body=b"", number=None, body_bytes=None):
    head = head if isinstance(head, bytes) else json.dumps(head).encode()
    number, body_bytes = asked() if number is None else number, len(body) if body_bytes is None else body_bytes
    data = memoryview(struct.pack("!QII", number, len(head), body_bytes) + head + body)
    while data:
        data = data[os.write(3, data):]
ok = {"outcome": "ok", "error": None, "value": "'forged'", "files": []}
"""


def _outcome_set(*outcomes: Outcome) -> frozenset[Outcome]:
    return frozenset(outcomes)


_TIMEOUT = _outcome_set(Outcome.TIMEOUT)
_PYTHON = (
    Attack("cpu loop", "while True: pass", _TIMEOUT, _LIMITED, wall_s=0.3),
    Attack(
        "ignored signals",
        "import signal\nfor number in set(signal.Signals) - {9, 19}:\n    signal.signal(number, signal.SIG_IGN)\n"
        "while True: pass",
        _TIMEOUT,
        _LIMITED,
        wall_s=0.3,
    ),
    Attack(
        "fork bomb",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        _TIMEOUT,
        wall_s=0.3,
    ),
    Attack(
        "thread bomb",
        "import threading, time\ntry:\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nexcept RuntimeError:\n"
        "    pass\n''",
    ),
    Attack(
        "memory bomb",
        "hoard = []\nwhile True:\n    hoard.append(bytearray(1 << 20))",
        _outcome_set(Outcome.MEMORY),
        _LIMITED,
    ),
    Attack(
        "memory bomb of many processes",
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        hoard = bytearray(30 << 20)\n"
        "        time.sleep(60)\ntime.sleep(60)",
        _outcome_set(Outcome.MEMORY, Outcome.ERROR),
    ),
    Attack(
        "memory of no process",
        _REFUSED + _LIBC + "import os\ntried('memfd', os.memfd_create, 'x') + called('shmget', 0, 1 << 20, 0o1600)"
        " + called('msgget', 0, 0o1600)",
    ),
    Attack(
        "disk bomb",
        "number = 0\nwhile True:\n    number += 1\n    open(str(number), 'wb').write(bytes(1 << 20))",
        _outcome_set(Outcome.ERROR, Outcome.KILLED),
    ),
    Attack(
        "a bomb of empty files",
        "number = 0\nwhile True:\n    number += 1\n    open(str(number), 'wb').close()",
        _outcome_set(Outcome.ERROR, Outcome.KILLED),
    ),
    Attack("output bomb", "while True: print('x' * 1000)", _outcome_set(Outcome.OUTPUT_LIMIT), _LIMITED),
    Attack(
        "daemon",
        "import os, time\ntry:\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            time.sleep(600)\n        os._exit(0)\nexcept OSError:\n    pass\n''",
    ),
    Attack("kill(-1)", _REFUSED + "import os\ntried('', os.kill, -1, 9)\ntried('', os.kill, -1, 15)\n''"),
    Attack(
        "kill(parent) and others",
        _REFUSED + "import os\nfor victim in (os.getppid(), BYSTANDER, 0):\n    tried('', os.kill, victim, 9)\n"
        "tried('', os.killpg, BYSTANDER, 9)\n''",
        _outcome_set(Outcome.OK),
    ),
    Attack(
        "limits of others",
        _REFUSED + "import os, resource\n"
        "tried('prlimit', resource.prlimit, BYSTANDER, resource.RLIMIT_NOFILE, (1, 1))"
        " + tried('affinity', os.sched_setaffinity, BYSTANDER, {0})"
        " + tried('priority', os.setpriority, os.PRIO_PROCESS, BYSTANDER, 19)",
    ),
    Attack(
        "own limits",
        _REFUSED + "import resource\n''.join(tried(str(limit), resource.setrlimit, limit, (1 << 40, 1 << 40))"
        " for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE))",
        levels=_CONTAINED,
    ),
    Attack(
        "host environment",
        "import os\nfound = [str(dict(os.environ))]\n"
        "for pid in ('self', '1', '2', str(os.getppid()), str(BYSTANDER)):\n"
        "    for name in ('environ', 'cmdline', 'maps'):\n        try:\n"
        "            found.append(open(f'/proc/{pid}/{name}').read())\n"
        "        except OSError:\n            pass\n"
        "'/proc' if len(found) > 1 else 'RLF' if 'RLF_SECRET' in found[0] else ''",
    ),
    Attack(
        "keys and files of the host",
        "import os\nfound = ''\n"
        "for name in (KEY_FILE, '/etc/shadow', '/etc/passwd', '/etc/hostname', '/root/.bashrc'):\n"
        "    try:\n        found += open(name).read()\n    except OSError:\n        pass\n"
        "for name in (FOLDER, '/home', '/var', '/proc/1'):\n    try:\n        found += str(os.listdir(name))\n"
        "    except OSError:\n        pass\nfound[:200]",
    ),
    Attack(
        "changes of the host's files",
        _REFUSED + "import os\n"
        "for attempt in ((os.chmod, KEY_FILE, 0o777), (os.truncate, KEY_FILE, 0), (os.remove, KEY_FILE),\n"
        "        (os.utime, KEY_FILE, (1, 1)), (os.rename, KEY_FILE, 'here'), (os.link, KEY_FILE, 'here'),\n"
        "        (os.setxattr, KEY_FILE, 'user.x', b'x'), (open, KEY_FILE, 'a'), (os.mkdir, FOLDER + '/new')):\n"
        "    tried('', *attempt)\n''",
    ),
    Attack(
        "inherited descriptors",
        _REFUSED + "import os\n''.join(tried(str(number), os.fstat, number) for number in range(4, 1024))",
    ),
    Attack(
        "network",
        "import socket\nfound = ''\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n        try:\n"
        "            end = socket.socket(family, kind)\n            found += f'{family.name} '\n"
        "            end.connect(('127.0.0.1', PORT))\n        except OSError:\n            pass\nfound",
    ),
    Attack(
        "privileges",
        _LIBC + "called('unshare', 0x10000000) + called('unshare', 0x20000) + called('mount', b'x', b'/work',"
        " b'tmpfs', 0, 0)"
        " + called('umount2', b'/proc', 2) + called('chroot', b'/') + called('setns', 0, 0) + called('ptrace',"
        " 0, 0, 0, 0)"
        " + called('ptrace', 16, BYSTANDER, 0, 0)",
    ),
    Attack(
        "the user root",
        _REFUSED + "import os\ntried('setuid', os.setuid, 0) + tried('setgid', os.setgid, 0)"
        " + tried('groups', os.setgroups, [0]) + ('root' if 0 in os.getresuid() + os.getresgid() else '')",
        levels=_CONTAINED,
    ),
    Attack(
        "writing where a sibling reads",
        "import os\nfor place in ('/', '/tmp', '/dev/shm', '/dev', '/var/tmp', '/usr', '/packages', '/data', '/guest',"
        " os.getcwd(), os.path.dirname(os.getcwd())):\n"
        "    try:\n        open(place + '/rlf-mark', 'w').write('seen')\n    except OSError:\n        pass\n''",
        after="import os\n"
        "' '.join(place for place in ('/', '/tmp', '/dev/shm', '/dev', '/var/tmp', '/usr', '/packages',"
        " '/data', '/guest', os.getcwd(), os.path.dirname(os.getcwd())) if os.path.exists(place + '/rlf-mark'))",
    ),
    Attack("a link to a key as its file", "import os\nos.symlink(KEY_FILE, 'link')\n''"),
)
_KILLED = _outcome_set(Outcome.KILLED)
_WRONG_ANSWERS = {
    "a failure of the sandbox": "ok | {'outcome': 'infra'}",
    "no outcome": "{'value': 'x'}",
    "a list": "[1, 2]",
    "no JSON": "b'{'",
    "no text": "b'\\xff\\xfe'",
    "nothing": "b''",
    "deep nesting": "b'[' * 100_000",
    "half a character": 'b\'{"outcome": "ok", "value": "\\\\ud800"}\'',
    "a number as value": "ok | {'value': 5}",
    "an object as error": "ok | {'outcome': 'error', 'error': {'a': 1}}",
    "a number as files": "ok | {'files': 5}",
    "files that are not there": "ok | {'files': ['a', 'b']}",
    "files of other folders": "ok | {'files': ['../../x']}, struct.pack('!I', 1) + b'x'",
    "a file twice": "ok | {'files': ['x', 'x']}, struct.pack('!II', 0, 0)",
    "rows": "ok | {'columns': ['a'], 'rows': [[1]], 'truncated': False}",
    "a key too many": "ok | {'sizes': [-1, 1]}",
    "lengths beyond its end": "ok, struct.pack('!I', 1 << 31) + b'x'",
    "a length cut short": "ok, b'xx'",
    "a million empty parts": "ok, bytes(4_000_000)",
}
_CHANNEL_ATTACKS = (
    *(
        Attack(f"answer: {name}", f"{_CHANNEL}send({what})\nos._exit(0)", _KILLED, _LIMITED)
        for name, what in _WRONG_ANSWERS.items()
    ),
    Attack("answers without end", _CHANNEL + "while True:\n    send(ok)", _KILLED, _LIMITED),
    Attack("answers to nothing, without end", _CHANNEL + "while True:\n    send(ok, number=7)", _KILLED, _LIMITED),
    Attack(
        "an answer of 2 GB",
        _CHANNEL + "send(ok, number=asked(), body_bytes=2_000_000_000)\nwhile True:\n    os.write(3, bytes(1 << 20))",
        _KILLED,
        _LIMITED,
    ),
    Attack(
        "an answer of all that one may have",
        _CHANNEL + "send(ok, struct.pack('!I', 16 << 20) + bytes(16 << 20), body_bytes=(16 << 20) + 8)\n''",
        _KILLED,
        _LIMITED,
    ),
    Attack("an answer before the real one", _CHANNEL + "send(ok)\n''", _KILLED, _LIMITED),
    Attack("bytes that are no answer", _CHANNEL + "os.write(3, b'Loading model... 100%\\n')\n''", _KILLED, _LIMITED),
    Attack(
        "half an answer",
        _CHANNEL + "os.write(3, struct.pack('!QII', asked(), 500, 0) + b'{')\ntime.sleep(60)",
        _TIMEOUT,
        _LIMITED,
        wall_s=0.5,
    ),
    Attack(
        "a closed channel",
        "import os, time\nos.close(3)\ntime.sleep(60)",
        _KILLED | _TIMEOUT,
        _LIMITED,
        wall_s=0.5,
    ),
    Attack(
        "an answer ahead of the next cell",
        _CHANNEL + "send(ok | {'value': \"''\"})\nsend(ok)\n''",
        _KILLED | _OK,
        _LIMITED,
        after="''",
        session=True,
    ),
    Attack(
        "an answer from a thread of the last cell",
        _CHANNEL + "import threading\nlast = asked()\ndef late():\n    time.sleep(0.3)\n    send(ok, number=last)\n"
        "threading.Thread(target=late, daemon=True).start()\n''",
        _KILLED | _OK,
        _LIMITED,
        after="import time\ntime.sleep(0.6)\n''",
        session=True,
    ),
)
_ERROR = _outcome_set(Outcome.ERROR)
_RECURSIVE = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
_JOIN = "t a, t b, t c, t d, t e WHERE a.x + b.x + c.x > d.x + e.x"
_SQL = (
    Attack("SQL write", "INSERT INTO t VALUES (2)", _ERROR, sql=True),
    Attack("SQL drop", "DROP TABLE t", _ERROR, sql=True),
    Attack("SQL two statements", "SELECT 1; DELETE FROM t", _ERROR, sql=True),
    Attack("SQL ATTACH", "ATTACH DATABASE 'other.db' AS other", _ERROR, sql=True),
    Attack("SQL VACUUM INTO", "VACUUM INTO 'copy.db'", _ERROR, sql=True),
    Attack("SQL PRAGMA", "PRAGMA writable_schema = 1", _ERROR, sql=True),
    Attack("SQL load_extension", "SELECT load_extension('/work/x.so')", _ERROR, sql=True),
    Attack("SQL printf bomb", "SELECT printf('%.*c', 900000000, 'x')", _TIMEOUT, sql=True, wall_s=0.3),
    Attack("SQL memory bomb", f"{_RECURSIVE} SELECT x FROM n ORDER BY -x", _outcome_set(Outcome.MEMORY), sql=True),
    Attack("SQL endless rows", f"{_RECURSIVE} SELECT x FROM n", sql=True),
    Attack("SQL runaway join", f"SELECT count(*) FROM {_JOIN}", _TIMEOUT, sql=True, wall_s=0.3),
)
ATTACKS = (*_PYTHON, *_CHANNEL_ATTACKS, *_SQL)
