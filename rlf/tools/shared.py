"""Things that all tools of an event loop share, such as a server's sessions: opened by the first, ended by the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Shared(Generic[T]):
    """`async with shared.use(key, open_) as thing`: one thing for each loop and key."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Kept[T]]] = WeakKeyDictionary()

    @asynccontextmanager
    async def use(self, key: Hashable, open_: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """The thing, opened where nobody else has it open. Raises what opening raises."""
        of_loop = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        kept = of_loop.setdefault(key, _Kept())
        kept.num_users += 1
        try:
            async with kept.opening:
                if kept.thing is None:
                    kept.thing = await kept.stack.enter_async_context(open_())
                thing = kept.thing
            yield thing
        finally:
            kept.num_users -= 1
            if not kept.num_users:
                del of_loop[key]
                await kept.stack.aclose()


class _Kept(Generic[T]):
    """A thing and the number of those who use it."""

    def __init__(self) -> None:
        self.num_users = 0
        self.opening = asyncio.Lock()
        """One of the users opens it, the others wait for that."""
        self.thing: T | None = None
        self.stack = AsyncExitStack()
