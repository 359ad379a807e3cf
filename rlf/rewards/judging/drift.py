"""Sentinels: whether a judge still judges as it should, while it judges."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlf.core import RunError
from rlf.core.identity import derive_seed
from rlf.rewards.judging.charts import Charts
from rlf.rewards.judging.kappa import cohen_kappa
from rlf.rewards.judging.labels import Labelled
from rlf.rewards.judging.settings import OnDrift, Sentinels

_SEED_BITS = 63


class Watchman:
    """Chooses sentinels, counts their verdicts and raises the alarm. A checkpoint holds its `state`."""

    def __init__(
        self,
        name: str,
        settings: Sentinels,
        items: Sequence[Labelled],
        seed: int,
        notify: Callable[[str, str], None],
    ) -> None:
        """`name` is the term's; `notify` takes a level and the words."""
        assert items, "a watchman without sentinels"
        self._name = name
        self._settings = settings
        self._items = items
        self._seed = seed
        self._notify = notify
        self._step: int | None = None
        self._charts = Charts(settings.tolerated, settings.drifted, settings.run_length, settings.alarm)
        self._latest: deque[tuple[bool, bool]] = deque(maxlen=settings.window)
        self.kappa: float | None = None
        """Of judge and labels, over the latest sentinels of the steps before; None while it cannot be computed."""
        self.frozen: str | None = None
        """Why the term has no value any more; None while it has."""

    def sentinel(self, trajectory_id: str, step: int) -> Labelled | None:
        """The sentinel to try beside a trajectory; None beside most. The first of a step always has one."""
        is_first = self._step is None or step > self._step  # steps may overlap
        if is_first:
            self._step = step
            self.kappa = cohen_kappa(list(self._latest)) if len(self._latest) > 1 else None
        drawn = derive_seed(self._seed, "sentinel", step, trajectory_id)
        if not is_first and drawn / 2**_SEED_BITS >= self._settings.rate:
            return None
        return self._items[derive_seed(self._seed, "item", step, trajectory_id) % len(self._items)]

    def observe(self, value: float, item: Labelled) -> None:
        """Counts the judge's verdict on a sentinel, until the term is frozen. Raises RunError where it ends the run."""
        if self.frozen is not None:
            return
        threshold = self._settings.threshold
        judged, known = value >= threshold, item.label >= threshold
        self._latest.append((judged, known))
        if (what := self._charts.add(value, judged=judged, known=known)) is not None:
            self._raise_alarm(what)

    def state(self) -> dict[str, Any]:
        """The state in a checkpoint, as JSON has it."""
        latest = [list(pair) for pair in self._latest]
        return {"charts": self._charts.state(), "latest": latest, "kappa": self.kappa, "frozen": self.frozen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`."""
        self._charts.restore(state["charts"])
        self._latest.extend((bool(judged), bool(known)) for judged, known in state["latest"])
        self.kappa, self.frozen = state["kappa"], state["frozen"]

    def _raise_alarm(self, what: str) -> None:
        wrong = sum(judged != known for judged, known in self._latest)
        kappa = cohen_kappa(list(self._latest))
        agreement = "" if kappa is None else f", kappa {kappa:.2f}"
        words = (
            f"{self._name}: the judge has drifted: {what}; {wrong} of the latest {len(self._latest)} sentinels judged "
            f"wrongly{agreement} (step {self._step})"
        )
        if self._settings.on_drift is OnDrift.STOP:
            raise RunError(f"rewards.{words}. Check the judge and its prompt, then resume with `rlf resume`.")
        if self._settings.on_drift is OnDrift.FREEZE:
            self.frozen = f"frozen since step {self._step}, when the judge had drifted"
            words += "; the term is frozen"
        self._notify("alarm", f"rewards.{words}")
