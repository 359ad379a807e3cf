"""An evaluation of OpenRLHF, of which all rows start when the first one is requested.

OpenRLHF hands evaluation rows over in batches of `prompts_per_step` with one sample each, and waits for the slowest of
a batch before it hands the next one over: 1,024 rows are 64 waits in which vLLM runs nearly empty. No weight changes
before an evaluation is over, and each row has a seed of its own, so that rows played before they are asked for are the
same as rows played then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rlf.types.score import Scored


class Ahead:
    """Plays all rows of an evaluation at once and returns each on request."""

    def __init__(self, labels: Sequence[str], play: Callable[[str], Awaitable[Scored]]) -> None:
        """Takes the labels of all rows, and what plays one."""
        self._labels = labels
        self._play = play
        self._under_way: dict[str, asyncio.Future[Scored]] = {}

    async def take(self, label: str) -> Scored:
        """A row's trajectory. A row that has been taken before begins the next evaluation."""
        if label not in self._under_way:
            labels = dict.fromkeys([*self._labels, label])
            self._under_way = {each: asyncio.ensure_future(self._play(each)) for each in labels}
        return await self._under_way.pop(label)
