"""Sentinels: whether a judge still judges as it should, while it judges."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from rlf.core import RunError
from rlf.core.seeds import derive_seed
from rlf.rewards.judging.kappa import cohen_kappa
from rlf.rewards.judging.labels import Labelled
from rlf.rewards.judging.settings import OnDrift, Sentinels

_SEED_BITS = 63


class Watchman:
    """Chooses sentinels, counts their verdicts and raises the alarm. State starts anew with each process of a run."""

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
        self._cusum = Cusum(settings.tolerated, settings.drifted)
        self._latest: deque[tuple[bool, bool]] = deque(maxlen=settings.window)
        self.kappa: float | None = None
        """Of judge and labels, over the latest sentinels of the steps before; None while it cannot be told."""
        self.frozen: str | None = None
        """Why the term has no value any more; None while it has."""

    def sentinel(self, trajectory_id: str, step: int) -> Labelled | None:
        """The sentinel to try beside a trajectory; None beside most. The first of a step always has one."""
        is_first = step != self._step
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
        if self._cusum.add(is_error=judged != known) > self._settings.alarm:
            self._cusum.value = 0.0
            self._raise_alarm()

    def _raise_alarm(self) -> None:
        wrong = sum(judged != known for judged, known in self._latest)
        kappa = cohen_kappa(list(self._latest))
        agreement = "" if kappa is None else f", kappa {kappa:.2f}"
        words = (
            f"{self._name}: the judge has drifted: {wrong} of the latest {len(self._latest)} sentinels judged wrongly"
            f"{agreement} (step {self._step})"
        )
        if self._settings.on_drift is OnDrift.STOP:
            raise RunError(f"rewards.{words}. Look at the judge and its prompt, then go on with `rlf resume`.")
        if self._settings.on_drift is OnDrift.FREEZE:
            self.frozen = f"frozen since step {self._step}, when the judge had drifted"
            words += "; the term is frozen"
        self._notify("alarm", f"rewards.{words}")


class Cusum:
    """The one-sided CUSUM of errors: S = max(0, S + log-likelihood ratio of drifted to tolerated), Page 1954.

    An error adds log(p1 / p0) and a right verdict log((1 - p1) / (1 - p0)), with p0 the share of errors that is
    tolerated and p1 the one to be found: the Bernoulli CUSUM of Reynolds and Stoumbos 1999.
    """

    def __init__(self, tolerated: float, drifted: float) -> None:
        self.value = 0.0
        self._error = math.log(drifted / tolerated)
        self._right = math.log((1 - drifted) / (1 - tolerated))

    def add(self, *, is_error: bool) -> float:
        """Counts a verdict; returns S."""
        self.value = max(0.0, self.value + (self._error if is_error else self._right))
        return self.value
