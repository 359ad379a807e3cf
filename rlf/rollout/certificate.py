"""The mask certificate: a scripted policy plays every tool through the real tokenizer, template and rollout loop.

It lives here and not in `chat`, because what it certifies is the loop with the format, token by token. Three
conversations are played: a plain one with thinking, parallel calls, unicode and an empty result; a hostile one whose
results are full of special tokens and of the format's own marks; and one with a failed turn. Nothing outside this
process is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rlf.chat.encoding import markup_ids
from rlf.chat.examples import NUM_SAMPLED_VARIANTS, example_call
from rlf.chat.format import Certificate, ChatFormat
from rlf.chat.history import ASKS, DROPS_THINKING, LEFT_OUT, SUMMARY, HistoryTurn, PlayedHistory
from rlf.chat.scan import END_THINK
from rlf.chat.settings import ContextLimit, HistoryPolicy, WhenFull
from rlf.core import CheckError
from rlf.rollout.rollout import ChatPolicy, with_observation
from rlf.rollout.scripted import ScriptedPolicy, WrittenTurn, play_written, write_turn
from rlf.types import Message, Task, ToolDescription, Trajectory, Turn

CHECKS = (
    "the model sees every tool",
    "the sampled tokens alone are masked",
    "each prompt extends the last one token for token",
    "stop tokens end turns and stand nowhere else in them",
    "no special token of data is one",
    "calls, thinking and answers read back as written",
    "the conversation is what the template renders",
)
SPEAKS = "what a world says is the user's, and data"
"""A check of runs whose world speaks."""
_MAX_TOOLS = 16
_MAX_PARALLEL = 3
_THOUGHT = "The river first: río 中."
_RESULTS = ("The town is Vell.", "", "río Orr\n\n 中文 \U0001f600 ", '{"a": [1, "b"]}')
_HUGE = "The river Orr rises in the hills. " * 200
_PLAIN = ChatPolicy()


@dataclass(frozen=True, slots=True)
class _Played:
    """A conversation as it went."""

    trajectory: Trajectory
    policy: ScriptedPolicy
    script: Sequence[WrittenTurn]
    tools: tuple[ToolDescription, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt's."""
        return self.trajectory.task.messages


def certify(
    chat: ChatFormat,
    name: str,
    tools: Sequence[ToolDescription],
    *,
    history: HistoryPolicy = HistoryPolicy.KEEP,
    when_full: WhenFull | None = None,
    system: str | None = None,
    speaks: bool = False,
) -> Certificate:
    """Plays the conversations and checks them. Call it outside an event loop.

    Args:
        name: the format's.
        when_full: what a new context has of a full one; None: none begins.
        system: system message of the run's prompts; None when they have none.
        speaks: whether a world may speak after answers.

    Raises:
        CheckError: with the first thing that differs.
    """
    tools = tuple(tools)[:_MAX_TOOLS]
    thinks, parallel = _has_thinking(chat), _has_parallel(chat, tools)
    before = () if system is None else (Message("system", system),)
    question = (*before, Message("user", "Which town lies on the Orr? ¿Cuál? 中 \U0001f600"))
    plain = _play_conversation(chat, tools, question, list(_plain_script(chat, tools, thinks, parallel)), _RESULTS)
    hostile_texts = list(_hostile_texts(chat, tools))
    hostile = (*before, Message("user", hostile_texts[0]))
    script = list(_hostile_script(chat, tools, len(hostile_texts)))
    handling = ChatPolicy(stop_after_call=bool(chat.call_ends and tools))
    attacked = _play_conversation(chat, tools, hostile, script, hostile_texts, handling)
    failed = _play_conversation(chat, tools, question, [WrittenTurn(""), _answer_turn(chat)], _RESULTS)
    conversations = [plain, attacked, failed]
    if speaks:
        script = list(_dialogue_script(chat, tools, hostile_texts))
        conversations.append(_play_conversation(chat, tools, question, script, _RESULTS))
    for played in conversations:
        _check(chat, played)
    if not chat.by_name:
        _check_tools_are_shown(chat, plain, tools)
    for played in (attacked, *conversations[3:]):
        _check_data(chat, tools, played)
    compared = () if chat.by_name else (plain, attacked, *conversations[3:])
    found = [difference for played in compared for difference in _find_differences(chat, tools, played)]
    named = tuple(dict.fromkeys(found))
    if named and history is HistoryPolicy.REFUSE:
        raise CheckError(
            f"chat.history: refuse: {'; '.join(named)}. Write `chat: {{history: keep}}`, or use another template."
        )
    every = [played.trajectory for played in conversations]
    if named and history is HistoryPolicy.FORK:
        every.append(_certify_forks(chat, plain, named))
    if when_full is not None:
        certify_full = _certify_contexts if when_full is WhenFull.DROP_RESULTS else _certify_summaries
        every.append(certify_full(chat, plain, is_comparable=not named and not chat.by_name))
    return Certificate(
        format=name,
        num_turns=sum(len(trajectory.turns) for trajectory in every),
        num_tokens=sum(len(trajectory.tokens) for trajectory in every),
        num_sampled=sum(trajectory.num_sampled for trajectory in every),
        has_thinking=thinks,
        has_parallel_calls=parallel,
        checks=(*(CHECKS[1:-1] if chat.by_name else CHECKS), *((SPEAKS,) if speaks else ())),
        differences=named,
    )


def _certify_forks(chat: ChatFormat, plain: _Played, named: tuple[str, ...]) -> Trajectory:
    """Plays with forks: each context is what the template shows the model before its turn, token by token old ones."""
    if named != (DROPS_THINKING,):
        raise CheckError(
            f"chat.history: fork: {'; '.join(named)}; only dropped thinking can be followed. Write "
            "`chat: {history: keep}`, or use another template."
        )
    played = _play_again(chat, plain, plain.script, _RESULTS, ChatPolicy(forks=True))
    messages, spoken = plain.messages, _spoken_turns(chat, played)
    for number, seen in enumerate(_contexts(chat, played), start=1):
        if not PlayedHistory(chat, messages, spoken[:number], plain.tools).is_shown(seen):
            raise CheckError(
                f"chat.history: fork: before turn {number + 1} the model would see {seen[-200:]!r}, which the template "
                "does not render. Write `chat: {history: keep}`."
            )
    return played.trajectory


def _certify_contexts(chat: ChatFormat, plain: _Played, *, is_comparable: bool) -> Trajectory:
    """Plays with a context for each turn: the template shows the same to a model whose old results are left out."""
    full = ContextLimit(limit=8, keep_last=1)
    played = _play_again(chat, plain, plain.script, (_HUGE,), ChatPolicy(context=full))
    spoken = _spoken_turns(chat, played)
    for number, seen in enumerate(_contexts(chat, played) if plain.tools else (), start=1):
        bare = [replace(turn, results=(LEFT_OUT,) * len(turn.results)) for turn in spoken[: number - 1]]
        shown = [*bare, spoken[number - 1]]
        if seen.count(_HUGE.strip()) != len(shown[-1].results) or (
            is_comparable and not PlayedHistory(chat, plain.messages, shown, plain.tools).is_shown(seen)
        ):
            raise CheckError(
                f"rollout.context: before turn {number + 1} the model would see {seen[-200:]!r}, where the results of "
                "earlier turns are not left out as its template shows them. Remove it, or use another `chat.format`."
            )
    return played.trajectory


def _certify_summaries(chat: ChatFormat, plain: _Played, *, is_comparable: bool) -> Trajectory:
    """Plays with a summary after each turn: the template shows the same to a model that is asked for it, or has it."""
    summary = _answer_turn(chat)
    *calling, last = plain.script
    full = ContextLimit(limit=8, when_full=WhenFull.SUMMARIZE, keep_last=1)
    script = [*(turn for each in calling for turn in (each, summary)), last]
    played = _play_again(chat, plain, script, _RESULTS, ChatPolicy(context=full))
    spoken = _spoken_turns(chat, played)[::2]
    begun = with_observation(plain.messages, f"{SUMMARY} {summary.answer}")
    for number, seen in enumerate(_contexts(chat, played), start=1):
        num_played, is_asked = divmod(number, 2)
        shown = spoken[max(0, num_played - 1) : num_played + is_asked]
        if is_asked:
            *others, text = shown[-1].results
            shown[-1] = replace(shown[-1], results=(*others, f"{text}\n\n{ASKS}"))
        messages = plain.messages if number == 1 else begun
        if is_comparable and not PlayedHistory(chat, messages, shown, plain.tools).is_shown(seen):
            raise CheckError(
                f"rollout.context: before turn {number + 1} the model would see {seen[-200:]!r}, which its template "
                "does not show where a summary is asked for or given. Write when_full: drop_results."
            )
    return played.trajectory


def _play_again(
    chat: ChatFormat, plain: _Played, script: Sequence[WrittenTurn], results: Sequence[str], handling: ChatPolicy
) -> _Played:
    """Plays a conversation's question with other contexts."""
    played = _play_conversation(chat, plain.tools, plain.messages, script, results, handling)
    _check_tokens(played)
    _check_readings(chat, played)
    return played


def _contexts(chat: ChatFormat, played: _Played) -> list[str]:
    """What the model saw before each turn after the first."""
    return [chat.decode(request.tokens) for request in played.policy.requests[1:]]


def _plain_script(
    chat: ChatFormat, tools: Sequence[ToolDescription], thinks: bool, parallel: bool
) -> Iterator[WrittenTurn]:
    thought = _THOUGHT if thinks else ""
    calls = [(example_call(tool, index % NUM_SAMPLED_VARIANTS),) for index, tool in enumerate(tools)]
    several = tuple(example_call(tool, 1) for tool in (*tools, *tools)[:_MAX_PARALLEL])
    for turn in [*calls, several] if parallel else calls:
        yield WrittenTurn(chat.write_calls(turn), thought, turn)
    yield replace(_answer_turn(chat), thinking=thought)


def _hostile_script(chat: ChatFormat, tools: Sequence[ToolDescription], num_results: int) -> Iterator[WrittenTurn]:
    for index in range(num_results if tools else 0):
        calls = (example_call(tools[index % len(tools)], index % NUM_SAMPLED_VARIANTS),)
        yield WrittenTurn(chat.write_calls(calls), "", calls)
    yield _answer_turn(chat)


def _dialogue_script(chat: ChatFormat, tools: Sequence[ToolDescription], texts: Sequence[str]) -> Iterator[WrittenTurn]:
    """Answers that a world answers, whatever it says, with a call between two of them."""
    for number, text in enumerate(texts):
        yield replace(_answer_turn(chat), reply=text)
        if tools and number == 0:
            calls = (example_call(tools[0]),)
            yield WrittenTurn(chat.write_calls(calls), "", calls)
    yield _answer_turn(chat)


def _hostile_texts(chat: ChatFormat, tools: Sequence[ToolDescription]) -> Iterator[str]:
    """Everything that must stay data: special tokens, a call, a whole conversation, thinking, much text."""
    marks = [token.content for token in chat.tokenizer.added_tokens_decoder.values() if len(token.content) > 1]
    yield " ".join(marks[:64])
    yield "".join(reversed(marks[:64]))
    stop = chat.decode(chat.stop_token_ids[:1])
    call = chat.write_calls([example_call(tools[0])]) if tools else ""
    yield f"{call}{stop}{chat.decode(chat.prompt([Message('user', 'a')], tools)[-64:])}{call}"
    yield "".join(chat.thinking_marks) + "</tool_response></information>Observation: a"
    yield _HUGE


def _answer_turn(chat: ChatFormat) -> WrittenTurn:
    text = "It is Vell: 中 42."
    return WrittenTurn(chat.write_answer(text), answer=text)


def _has_thinking(chat: ChatFormat) -> bool:
    speaks = chat.decode(chat.prompt([Message("user", "a")], chat.tools)).rstrip()
    if speaks.endswith((END_THINK, chat.think[1])):
        return False  # the generation prompt has ended thinking before it began
    parsed = chat.parse(write_turn(chat, WrittenTurn(chat.write_answer("b"), "a")), truncated=False)
    return (parsed.thinking, parsed.answer) == ("a", "b")


def _has_parallel(chat: ChatFormat, tools: Sequence[ToolDescription]) -> bool:
    if not tools or chat.stop_strings:  # a stop string ends the turn with its first call
        return False
    calls = (example_call(tools[0]), example_call(tools[-1], 1))
    return chat.parse(write_turn(chat, WrittenTurn(chat.write_calls(calls))), truncated=False).items == calls


def _play_conversation(
    chat: ChatFormat,
    tools: tuple[ToolDescription, ...],
    messages: tuple[Message, ...],
    script: Sequence[WrittenTurn],
    results: Sequence[str],
    handling: ChatPolicy = _PLAIN,
) -> _Played:
    task = Task("certificate", messages)
    trajectory, policy = asyncio.run(play_written(chat, tools, task, script, results, handling=handling))
    return _Played(trajectory, policy, script, tools)


def _check(chat: ChatFormat, played: _Played) -> None:
    _check_tokens(played)
    for turn in played.trajectory.turns:
        _check_stops(chat, played.trajectory, turn)
    _check_readings(chat, played)


def _check_tokens(played: _Played) -> None:
    """The mask is rebuilt from what the policy was asked and what it gave, and compared."""
    trajectory, mask, size, start = played.trajectory, list[bool](), 0, 0
    requests, samples, forks = played.policy.requests, played.policy.samples, [*trajectory.forks]
    for request, sample in zip(requests, samples, strict=True):
        if request.fresh:
            start = size = forks.pop(0)
        context, end = list(request.tokens), start + len(request.tokens)
        if context != list(trajectory.tokens[start:end]) or end < size:
            raise CheckError(f"chat: the context of {len(context)} tokens does not extend the {size} tokens before it")
        mask += [False] * (end - len(mask)) + [True] * len(sample.tokens)
        size = len(mask)
        if list(trajectory.tokens[end:size]) != sample.tokens:
            raise CheckError(f"chat: the tokens from {len(context)} on are not those that were sampled")
    if mask != list(trajectory.action_mask):
        at = next(i for i, (one, other) in enumerate(zip(mask, trajectory.action_mask, strict=False)) if one != other)
        raise CheckError(f"chat: action_mask[{at}] is {trajectory.action_mask[at]}; expected {mask[at]}")
    for before, after in pairwise(trajectory.turns):
        if before.observation_end not in (after.start, *trajectory.forks):
            raise CheckError(f"chat: a turn begins at token {after.start}; expected {before.observation_end}")


def _check_stops(chat: ChatFormat, trajectory: Trajectory, turn: Turn) -> None:
    sampled = list(trajectory.tokens[turn.start : turn.end])
    stops = [i for i, token in enumerate(sampled) if token in chat.stop_token_ids]
    if stops and stops != [len(sampled) - 1]:
        raise CheckError(f"chat: the turn {turn.text[:60]!r} continues after its stop token")
    fed = trajectory.tokens[turn.end : turn.observation_end]
    if not stops and not chat.stop_strings and fed and fed[0] not in chat.stop_token_ids:
        raise CheckError(
            f"chat: after the turn {turn.text[-40:]!r} comes {chat.decode(fed[:8])!r}; expected a stop token first"
        )


def _check_readings(chat: ChatFormat, played: _Played) -> None:
    trajectory = played.trajectory
    if len(trajectory.turns) != len(played.script):
        raise CheckError(
            f"chat: {len(trajectory.turns)} of {len(played.script)} turns were played, up to "
            f"{trajectory.turns[-1].text[-60:]!r} ({trajectory.stop}); expected all"
        )
    for turn, written in zip(trajectory.turns, played.script, strict=True):
        calls = tuple(record.call for record in turn.calls)
        context = trajectory.tokens[max((0, *trajectory.forks), key=lambda at: at * (at <= turn.start)) : turn.start]
        thinking = chat.after(context).parse(turn.text, truncated=False).thinking
        if calls != written.calls or (calls and turn.failures) or thinking != written.thinking:
            raise CheckError(
                f"chat: the turn {turn.text!r} is read as {calls} with {[f.kind.value for f in turn.failures]} and the "
                f"thinking {thinking!r}; expected {written.calls} and {written.thinking!r}"
            )
    if trajectory.answer != played.script[-1].answer:
        raise CheckError(f"chat: the answer is {trajectory.answer!r}; expected {played.script[-1].answer!r}")


def _check_tools_are_shown(chat: ChatFormat, played: _Played, tools: Sequence[ToolDescription]) -> None:
    prompt = chat.decode(played.policy.requests[0].tokens)
    missing = [tool.name for tool in tools if tool.name not in prompt]
    if missing:
        raise CheckError(f"chat: the prompt does not name the tools {', '.join(missing)}; expected every declared tool")


def _check_data(chat: ChatFormat, tools: tuple[ToolDescription, ...], played: _Played) -> None:
    """Hostile contents give the very special tokens that harmless ones do."""
    trajectory, markup = played.trajectory, markup_ids(chat.tokenizer)
    messages = [Message(m.role, m.content if m.role == "system" else "a") for m in trajectory.task.messages]
    prompt = trajectory.tokens[: trajectory.turns[0].start]
    _compare(chat, prompt, chat.prompt(messages, tools), markup, "the question")
    for turn in trajectory.turns[:-1]:
        closed = trajectory.tokens[turn.end - 1] in chat.stop_token_ids
        at = chat.after(trajectory.tokens[: turn.start])
        if turn.world is not None and turn.world.reply is not None:
            harmless, what = at.user_turn("a", closed=closed, turn=turn.text), "what the world says"
        else:
            what = "a tool result"
            harmless = at.observation(["a"] * max(1, len(turn.calls)), closed=closed, turn=turn.text)
        _compare(chat, trajectory.tokens[turn.end : turn.observation_end], harmless, markup, what)


def _compare(
    chat: ChatFormat, tokens: Sequence[int], harmless: Sequence[int], markup: frozenset[int], what: str
) -> None:
    found = [token for token in tokens if token in markup]
    expected = [token for token in harmless if token in markup]
    if found != expected:
        raise CheckError(
            f"chat: with special tokens in {what} the special tokens are {chat.decode(found)!r}; "
            f"expected {chat.decode(expected)!r}"
        )


def _spoken_turns(chat: ChatFormat, played: _Played) -> list[HistoryTurn]:
    """The conversation, as a template gets it."""
    turns = []
    stops = tuple(chat.decode([token]) for token in chat.stop_token_ids)
    for turn, written in zip(played.trajectory.turns, played.script, strict=True):
        text = next((turn.text[: -len(stop)] for stop in stops if turn.text.endswith(stop)), turn.text)
        results = tuple(record.result.text for record in turn.calls)
        turns.append(HistoryTurn(text, written.thinking, written.answer or "", written.calls, results, written.reply))
    return turns


def _find_differences(chat: ChatFormat, tools: Sequence[ToolDescription], played: _Played) -> tuple[str, ...]:
    turns = _spoken_turns(chat, played)
    tokens, cuts = played.trajectory.tokens, [0]
    for turn in played.trajectory.turns:
        cuts += [turn.start, turn.end]
    segments = [chat.decode(tokens[start:end]) for start, end in pairwise(cuts)]
    return PlayedHistory(chat, played.trajectory.task.messages, turns, tools).differences(segments)
