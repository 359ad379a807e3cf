"""A judge behind HTTP that says what it is told to: an OpenAI-compatible server on a thread, for as long as needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import log
from typing import Any

Saying = Callable[[Mapping[str, Any]], Any]
"""From a request's body to the reply: text, or {status: ..}, or {text: .., logprobs: [{token: probability}]}."""


class Judge:
    """A server and what it was asked."""

    def __init__(self, say: Saying) -> None:
        self.say = say
        self.asked: list[Mapping[str, Any]] = []
        self.keys: list[str | None] = []
        """`Authorization` of each."""
        handler = type("Handler", (_Handler,), {"judge": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def endpoint(self, model: str = "judge", **keys: Any) -> dict[str, Any]:
        return {"url": self.url, "model": model, **keys}

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Answers from here on; the port is taken since the judge was made."""
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()

    @property
    def prompts(self) -> list[str]:
        """The user messages' texts."""
        contents = [body["messages"][-1]["content"] for body in self.asked]
        return [each if isinstance(each, str) else each[0]["text"] for each in contents]


@contextmanager
def judging(say: Saying | str) -> Iterator[Judge]:
    """Serves; a text is said to everybody."""
    judge = Judge(say if callable(say) else lambda body: say)
    with judge.serving():
        yield judge


class _Handler(BaseHTTPRequestHandler):
    judge: Judge
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.judge.asked.append(body)
        self.judge.keys.append(self.headers["Authorization"])
        said = self.judge.say(body)
        if isinstance(said, Mapping) and "status" in said:
            self._send(said["status"], said.get("body", {"error": {"message": "broken on purpose"}}))
        else:
            self._send(200, _answer({"text": said} if isinstance(said, str) else said))

    def _send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def _answer(said: Mapping[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": said["text"]}, "finish_reason": "stop"}
    if "logprobs" in said:
        tokens = [[{"token": token, "logprob": log(p)} for token, p in place.items()] for place in said["logprobs"]]
        choice["logprobs"] = {"content": [{**place[0], "top_logprobs": place} for place in tokens]}
    return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}
