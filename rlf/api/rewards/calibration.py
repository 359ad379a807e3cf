"""A judge compared with people's labels."""

from __future__ import annotations

from pathlib import Path

from rlf.api.rewards.scoring import load_rewards, tell
from rlf.core.errors import RlfError
from rlf.reports.calibration import Calibration, compare_with_labels
from rlf.rewards.judging.calibrating import judge_all
from rlf.rewards.judging.labels import read_labels
from rlf.rewards.judging.scorer import JudgeScorer
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.rewards.term import RewardContext
from rlf.tools import Executor

__all__ = ["Calibration", "calibrate", "judge_in"]


def judge_in(file: Path, name: str | None) -> tuple[JudgeTerm, int]:
    """The judge of a spec or reward file, and the seed. Raises RlfError where there is none, or several and no name."""
    (found,) = load_rewards([file])
    judges = {term.name: term for term in found.terms if isinstance(term, JudgeTerm)}
    if name is None and len(judges) == 1:
        return next(iter(judges.values())), found.seed
    if name not in judges:
        known = ", ".join(judges) or "none"
        wanted = "has several judges" if name is None and judges else f"has no judge{f' {name!r}' if name else ''}"
        raise RlfError(f"{file}: {wanted} (known: {known}). Name one by --term.")
    return judges[name], found.seed


async def calibrate(term: JudgeTerm, labels: Path, *, seed: int, threshold: float) -> Calibration:
    """Judges every item, nothing from the cache, and compares. Raises RlfError where nothing could be judged."""
    term = term.model_copy(update={"sentinels": None, "cache": None})
    items = read_labels(str(labels), term.judging)
    if not items:
        raise RlfError(f"{labels}: holds no item; expected one JSON object a line. Name another file.")
    async with Executor((), seed=seed) as tools, term.open(RewardContext(tools.for_rewards, seed, tell)) as scorer:
        assert isinstance(scorer, JudgeScorer), f"a judge opens {type(scorer).__name__}"
        judged = await judge_all(scorer, term, items)
    if all(each.judgement.value is None for each in judged):
        raise RlfError(f"none of {len(items)} items could be judged: {judged[0].judgement.reason}. Check the judge.")
    return compare_with_labels(term, judged, threshold)
