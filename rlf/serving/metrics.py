"""Counters of a server, in Prometheus' text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

_MAX_NAMES = 100
"""Names of keys that are counted apart: clients choose them."""
_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)


class Metrics:
    """Counters and gauges of one server."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._request_s = 0.0
        self._num_requests = 0
        self._tokens: Counter[str] = Counter()
        self._prompts: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        """Words and value by name."""

    def count_request(self, path: str, status: int, duration_s: float) -> None:
        """Counts a request that is answered."""
        self._requests[path, status] += 1
        self._num_requests += 1
        self._request_s += duration_s
        self._buckets.update(bound for bound in _BOUNDS_S if duration_s <= bound)

    def count_tokens(self, prompt: int, sampled: int) -> None:
        """Counts an answer's tokens."""
        self._tokens.update({"prompt": prompt, "sampled": sampled})

    def count_prompt(self, *, is_continued: bool) -> None:
        """Counts a conversation with earlier turns, by whether their tokens were used again."""
        self._prompts["continued" if is_continued else "rendered"] += 1

    def count_ignored(self, key: str) -> bool:
        """Counts a key of a request that had no effect; whether it is the first of its name."""
        name = key if key in self._ignored or len(self._ignored) < _MAX_NAMES else "other"
        self._ignored[name] += 1
        return self._ignored[name] == 1

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._list_lines()) + "\n"

    def _list_lines(self) -> Iterator[str]:
        requests = {f'path="{path}",status="{status}"': n for (path, status), n in sorted(self._requests.items())}
        yield from _show_family("rlf_requests_total", "counter", "Requests that were answered.", requests)
        yield from _show_family(
            "rlf_tokens_total", "counter", "Tokens of prompts, and tokens sampled.", _label_counts("kind", self._tokens)
        )
        yield from _show_family(
            "rlf_conversations_total",
            "counter",
            "Prompts with earlier turns: their tokens used again, or rendered by the template.",
            _label_counts("prompt", self._prompts),
        )
        yield from _show_family(
            "rlf_ignored_keys_total", "counter", "Keys without effect.", _label_counts("key", self._ignored)
        )
        for name, (words, value) in self.gauges.items():
            yield from _show_family(name, "gauge", words, {"": value()})
        yield from _show_family("rlf_request_seconds", "histogram", "Time of a request, its answer included.", {})
        for bound in _BOUNDS_S:
            yield f'rlf_request_seconds_bucket{{le="{bound}"}} {self._buckets[bound]}'
        yield f'rlf_request_seconds_bucket{{le="+Inf"}} {self._num_requests}'
        yield f"rlf_request_seconds_sum {self._request_s:.6f}"
        yield f"rlf_request_seconds_count {self._num_requests}"


def _label_counts(label: str, counts: Mapping[str, int]) -> dict[str, float]:
    return {f"{label}={json.dumps(value)}": number for value, number in sorted(counts.items())}


def _show_family(name: str, kind: str, words: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
