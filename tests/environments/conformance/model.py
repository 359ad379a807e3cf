"""A user that a model plays, over a world and over none."""

import json
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from rlf.types import ToolCall

from .. import worlds
from ._subject import Subject


class Scripted(BaseHTTPRequestHandler):
    """Answers as an OpenAI-compatible server: what it is asked last says what."""

    def do_GET(self):
        self.answer(200, {"data": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        last = body["messages"][-1]["content"]
        if last == "HANG":
            time.sleep(4)
        words = "Thanks, bye. ###STOP###" if "3" in last else f"I asked for {body['messages'][0]['content']}."
        message = {"choices": [{"message": {"role": "assistant", "content": words}, "finish_reason": "stop"}]}
        usage = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        self.answer(400 if last == "BREAK" else 200, message | usage)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing."""


@contextmanager
def scripted(handler=Scripted):
    """A server and the requests that it got."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.asked = []
    Thread(target=server.serve_forever, daemon=True).start()
    yield [{"url": f"http://127.0.0.1:{server.server_port}/v1", "model": "user"}], server.asked
    server.shutdown()
    server.server_close()


def subject(**keys):
    @contextmanager
    def made():
        with scripted() as (endpoints, _):
            env = {"kind": "model", "endpoints": endpoints, "system": "{{ answer }} apples", **keys}
            solve = [ToolCall("add", {"amount": 3})] if "world" in keys else []
            yield Subject(
                env,
                solve=[*solve, "Here are 3."],
                score="exact" if "world" in keys else "ended",
                hang=["HANG"],
                breaks=["BREAK"],
                says="the model that plays the user: ",
            )

    return made


COUNTER = {"kind": "python", "callable": f"{worlds.__file__}:Counter"}
SUBJECTS = {"alone": subject(), "over_a_world": subject(world=COUNTER, greeting="Hello.")}
