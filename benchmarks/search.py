"""The search server's index over generated passages."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlf.apps.offer.search import open_corpus
from rlf.core.process import usable_cores

WORDS = [f"{a}{b}{c}" for a, b, c in itertools.product(("ba", "do", "ki", "lu", "mer", "ta", "vo", "sun"), repeat=3)]
VOCABULARY = [f"{one}{number}" for number in range(200) for one in WORDS]
WEIGHTS = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(VOCABULARY))))
PASSAGE_WORDS, QUERY_WORDS, NUM_QUERIES = 100, 10, 400


def passages(count: int) -> Iterator[bytes]:
    """Passages of words with the frequencies of Zipf's law, as of a natural language."""
    generator = random.Random(0)
    for number in range(count):
        text = " ".join(generator.choices(VOCABULARY, cum_weights=WEIGHTS, k=PASSAGE_WORDS))
        yield json.dumps({"id": str(number), "contents": text}).encode() + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("passages", nargs="?", type=int, default=200_000, help="how many (200,000)")
    count = parser.parse_args().passages
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.jsonl"
        with file.open("wb") as out:
            out.writelines(passages(count))
        started = time.perf_counter()
        corpus = open_corpus(file)
        built_s = time.perf_counter() - started
        started = time.perf_counter()
        corpus = open_corpus(file)
        opened_s = time.perf_counter() - started
        size = file.with_name(file.name + ".bm25").stat().st_size
        generator = random.Random(1)
        queries = [
            " ".join(generator.choices(VOCABULARY, cum_weights=WEIGHTS, k=QUERY_WORDS)) for _ in range(NUM_QUERIES)
        ]
        times_s = []
        started = time.perf_counter()
        with ThreadPoolExecutor(usable_cores()) as threads:

            def ask(query: str) -> None:
                began = time.perf_counter()
                corpus.search(query, 3)
                times_s.append(time.perf_counter() - began)

            list(threads.map(ask, queries))
        all_s = time.perf_counter() - started
        times_s.sort()
        print(f"{count:,} passages of {PASSAGE_WORDS} words, {file.stat().st_size / count:.0f} bytes each as JSONL")
        print(f"built in {built_s:.1f} s ({count / built_s:,.0f} passages/s), opened again in {opened_s * 1e3:.1f} ms")
        print(f"index: {size / count:.0f} bytes a passage")
        p50, p95 = times_s[len(times_s) // 2], times_s[int(len(times_s) * 0.95)]
        print(
            f"{NUM_QUERIES / all_s:.0f} queries/s of {QUERY_WORDS} words on {usable_cores()} threads; "
            f"a query takes {p50 * 1e3:.1f} ms (p50), {p95 * 1e3:.1f} ms (p95)"
        )


if __name__ == "__main__":
    main()
