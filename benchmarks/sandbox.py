"""Speed of the sandbox: `python benchmarks/sandbox.py`. All figures of one run, to be read as ratios.

One-shot calls a second (many at once) and their median time (one after the other), by level and with packages imported
before; a session's cell over `exec` of the same text; and a plain `python -c` subprocess, which contains nothing.
Run it as an ordinary user for the figures that the documents give.
"""

import argparse
import asyncio
import getpass
import statistics
import subprocess
import sys
import time

from rlf.sandbox import LevelChoice, Request, Sandbox, SandboxOutcome, SandboxSpec
from rlf.sandbox.fork_servers import probe

SOURCE = "total = sum(n * n for n in range(1000))\nprint(total)\ntotal"
NUM_CALLS = 400
AT_ONCE = 16


async def one(sandbox, session=None):
    started = time.perf_counter()
    execution = await sandbox.run(Request(SOURCE), session=session)
    assert execution.outcome is SandboxOutcome.OK, execution
    return time.perf_counter() - started


async def many(sandbox):
    """Calls a second, AT_ONCE of them at any time."""
    left = iter(range(NUM_CALLS))

    async def work():
        for _ in left:
            await one(sandbox)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return NUM_CALLS / (time.perf_counter() - started)


def show(what, rate, median_s, plain_s):
    print(f"{what:<34}{rate:8.0f} calls/s   p50 {median_s * 1000:6.2f} ms   {plain_s / median_s:5.1f} x plain")


async def measure(level, packages, plain_s):
    async with Sandbox(SandboxSpec(level=level, packages=packages, allow_unsafe=True)) as sandbox:
        for _ in range(20):
            await one(sandbox)
        median_s = statistics.median([await one(sandbox) for _ in range(NUM_CALLS // 2)])
        show(f"{level.value} {' '.join(packages)}", await many(sandbox), median_s, plain_s)
        await one(sandbox, "s")
        cell_s = statistics.median([await one(sandbox, "s") for _ in range(NUM_CALLS)])
        print(f"  a session's cell: {(cell_s - bare_s()) * 1000:.2f} ms over exec")


def bare_s():
    """The same text by `exec` alone."""
    times = []
    for _ in range(NUM_CALLS):
        started = time.perf_counter()
        exec(compile(SOURCE, "<code>", "exec"), {"print": lambda _: None})
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def plain():
    """Seconds of one `python -c`."""
    times = []
    for _ in range(NUM_CALLS // 10):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", SOURCE], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


async def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"as {getpass.getuser()}, Python {sys.version.split()[0]}")
    plain_s = plain()
    show("plain python -c, one at a time", 1 / plain_s, plain_s, plain_s)
    for report in await probe():
        if report.available:
            for packages in ((), ("numpy", "sympy")):
                await measure(LevelChoice(report.level), packages, plain_s)


asyncio.run(main())
