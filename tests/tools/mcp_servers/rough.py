"""An MCP server of bare lines, without the SDK, that does as its first argument says. Starts in no time.

Every start and every cancellation that reaches it leaves a line in the file that ROUGH_LOG names.
"""

import json
import os
import sys
import time
from pathlib import Path

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
TOOL = {
    "name": "say",
    "description": os.environ.get("ROUGH_WORDS", "Say it."),
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def log(line):
    if path := os.environ.get("ROUGH_LOG"):
        with Path(path).open("a") as file:
            file.write(line + "\n")


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def result_of(method):
    if method == "initialize":
        about = {"name": "rough", "version": "1"}
        has = {"tools": {}, "resources": {}} if MODE == "no templates" else {"tools": {}}
        return {"protocolVersion": "2025-06-18", "capabilities": has, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {}


def call(number, text):
    if MODE == "die":
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(9)
    if MODE == "garbage":
        sys.stdout.write("Loading model... 100%\n\n{not json\n\x00\x01\n" + "[" * 100_000 + "\n")
    if MODE == "logs":
        params = {"level": "info", "data": "x" * 80}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        sys.stdout.write((note + "\n") * 20_000)
    if MODE == "flood":
        for _ in range(500):
            sys.stderr.write("x" * 99_999 + "\n")
    if MODE.startswith("endless "):  # what follows, again and again
        line = MODE.removeprefix("endless ").encode().decode("unicode_escape").encode()
        while True:
            os.write(1, line * (60_000 // len(line)))
    if MODE == "hang":
        return
    if MODE == "folder":  # which its second argument names, by itself or behind `=`
        text = " ".join(sorted(path.name for path in Path(sys.argv[2].rpartition("=")[2]).iterdir()))
    if MODE == "huge":
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": [{{"type": "text", "text": "')
        for _ in range(100):
            sys.stdout.write("x" * 1_000_000)
        sys.stdout.write('"}]}}\n')
        sys.stdout.flush()
        return
    send({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}})


log(f"start {os.getpid()}")
if MODE == "refuse":
    sys.exit("no such database")
if MODE == "file":  # made at the start where it is not there, as a database is
    Path(sys.argv[2]).touch()
if MODE == "slow start":
    time.sleep(2)
if MODE == "late":
    time.sleep(5)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "notifications/cancelled":
        log(f"cancelled {message['params']['requestId']}")
    elif message["method"] == "tools/call":
        call(message["id"], message["params"]["arguments"]["text"])
    elif message["method"] == "resources/list":
        memo = {"uri": "memo://insights", "name": "memo"}
        send({"jsonrpc": "2.0", "id": message["id"], "result": {"resources": [memo]}})
    elif message["method"] == "resources/templates/list":
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    elif "id" in message:
        send({"jsonrpc": "2.0", "id": message["id"], "result": result_of(message["method"])})
