"""A forecast for people: in the terminal, and as a page with its intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlf.apps.evaluate.findings import Findings
from rlf.apps.evaluate.forecast import Forecast, StepFigure
from rlf.apps.evaluate.outlook import gpu_words, steps_words
from rlf.reports.pages.chart import Chart, Line
from rlf.reports.sheets import Sheet, count, decimal, dollars, duration, percent


def show_forecast(found: Forecast) -> Findings:
    """For people: the intervals as bands, and what came true beside them where the plan was run."""
    num = f"{found.num_groups} groups of {found.num_generations}, {found.num_counted} trajectories with a reward"
    head = f"forecast of {found.name}: {num}"
    return Findings(f"forecast of {found.name}", _sheets(found), list(_lines(found)), head, list(_charts(found)))


def _charts(found: Forecast) -> Iterator[Chart]:
    for name, figure in _FIGURES:
        expected: StepFigure | None = getattr(found, figure)
        if expected is None:
            continue
        seen = found.came_true.get(figure, ())
        last = max(2, *(step for step, _ in seen)) if seen else 2
        xs = [1 + (last - 1) * place / _BAND for place in range(_BAND + 1)]  # so many are drawn as one band
        band = tuple((step, expected.low, expected.high) for step in xs)
        lines = [Line("forecast, with 80 % intervals", 0, ((1.0, expected.mean), (last, expected.mean)), band)]
        if seen:
            lines.append(Line("run", 1, tuple((float(step), value) for step, value in seen)))
        yield Chart(f"{name}: forecast for the first steps", tuple(lines), share=figure in ("success", "dead"))


_FIGURES = (
    ("success", "success"),
    ("reward", "reward"),
    ("dead groups", "dead"),
    ("tokens sampled, of a trajectory", "tokens"),
    ("sampling, s", "sampling_s"),
)
_BAND = 30
_WORDS: dict[str, Callable[[float], str]] = {"success": percent, "dead": percent, "tokens": count}


def _sheets(found: Forecast) -> list[Sheet]:
    cells = list[tuple[str, ...]]()
    for name, figure in _FIGURES:
        one, show = getattr(found, figure), _WORDS.get(figure, decimal)
        said = ["-", "cannot say"] if one is None else [show(one.mean), f"{show(one.low)} to {show(one.high)}"]
        cells.append((name, *said))
    title, header = f"A step of {found.groups_per_step} groups", ("figure", "expected", "80 % interval")
    return [Sheet(title, "", header, tuple(cells), figures=True), *_more_sheets(found)]


def _more_sheets(found: Forecast) -> Iterator[Sheet]:
    if found.kinds:
        rows = tuple(
            (one.kind, str(one.num_groups), percent(one.success), percent(one.all_right), percent(one.all_wrong))
            for one in found.kinds
        )
        yield Sheet("By kind", "", ("kind", "groups", "success", "all right", "all wrong"), rows, True)
    terms = tuple(
        (one.term, decimal(one.mean), percent(one.differs), percent(one.share), str(one.num_missing))
        for one in found.terms
    )
    header = ("term", "mean", "differs in", "of the order", "missing")
    yield Sheet("Reward terms", "differs in: groups; of the order: of the variance within groups", header, terms, True)
    if found.differing:
        sizes = tuple(str(k) for k in found.differing)
        shares = tuple(percent(share) for share in found.differing.values())
        note = f"up to {found.num_generations} as sampled, beyond by a beta distribution"
        yield Sheet("Groups with both outcomes", note, ("num_generations", *sizes), (("share", *shares),), True)


def _lines(found: Forecast) -> Iterator[str]:
    ends = sorted(found.stops.items(), key=lambda one: -one[1])
    stops = ", ".join(f"{name} {percent(share)}" for name, share in ends)
    yield f"ends: {stops}; {found.calls:.1f} calls a trajectory, {percent(found.waiting)} of its time in tools"
    if found.parse_failures:
        failures = ", ".join(f"{name} {number}" for name, number in found.parse_failures.items())
        yield f"turns that could not be read: {failures}"
    if found.num_questions is not None:
        yield f"a change of 5 points is shown by about {found.num_questions:,} held-out questions (80 % power)"
    yield f"learns: held-out success rises by more than chance explains with a chance of {percent(found.learns)}"
    if found.cost_usd:
        run = f"about {dollars(found.run_cost_usd)} for all, evaluations included"
        yield f"cost: {dollars(found.cost_usd)} a step at first, {run}"
    if found.step_time is None:
        yield "time of a whole step: cannot say; no run of this plan has made a step here"
    else:
        step_s = found.step_time.median_s
        each = duration(step_s) if step_s >= 60 else f"{step_s:.1f} s"
        yield f"a whole step took {each} before; all take {duration(step_s * found.num_steps)}"
    yield from steps_words(found.steps, found.num_steps, None if found.step_time is None else found.step_time.median_s)
    if found.gpus is not None:
        yield gpu_words(found.gpus)
    yield from (f"- {line}" for line in found.advice)
