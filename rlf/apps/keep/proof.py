"""`rlf verify FOLDER`: which sentences of an exported model's card follow from what lies beside it, without a network.

No code of the folder is run, so reward terms other than rules, and tools, are not called. A forger who makes a whole
new folder can make all of it consistent; the head of the chain, published elsewhere by the one who trained the model,
shows the forgery.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf import __version__
from rlf.apps.keep.card import CURVE, card_markdown
from rlf.apps.keep.export import CARD, PROOF, PROOF_LINEAGE, make_card
from rlf.apps.keep.verification import check_rows
from rlf.core.errors import RlfError, RunError
from rlf.core.identity import hash_path
from rlf.core.registry import is_present, load_function
from rlf.lineage.graph import row_hashes
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, Evaluation, Run, StoredTrajectory, TrajectoryFilter
from rlf.lineage.store import open_store
from rlf.runs.exports import ORIGIN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.spec.models import RunSpec

_NUM_FIRST = 3
"""Claims without which no other one means anything: files, run, lineage."""
_GREEDY, _SAMPLED = "greedy", "sampled"
_SAME = 1e-9
_OF_ITS_MACHINE = ("report_to", "lineage")
"""Keys that name what the trainer's machine has."""
_MODEL_S = 20.0
"""Time for which the model reads its own answers."""
_AGREEING = 0.98
"""Share of a greedy answer's tokens that a model has as its likeliest too: the rest is what another device rounds."""
_ATTACK = "apps.attack.attack:attack"
_ATTACK_S = 2.0
_NUM_ATTACKED = 6
_MAX_TEXTS = 40
"""Answers of the model that are tried on other questions."""


class ClaimState(StrEnum):
    """What is known of a sentence."""

    PROVEN = "proven"
    """It follows from what lies in the folder."""
    CLAIMED = "claimed"
    """Nothing in the folder says that it is right, or wrong."""
    WRONG = "wrong"
    """It contradicts what lies in the folder."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a card."""

    sentence: str
    state: ClaimState
    reason: str
    """What it was compared with; what is wrong, or why it is not known."""


@dataclass(frozen=True, slots=True)
class ModelProof:
    """The sentences of an exported model."""

    folder: Path
    run_id: str
    sha256: str
    """Of the file of hashes, which stands for the folder and the chain of its run: to be compared with what the one who
    exported it has published."""
    claims: tuple[Sentence, ...]


def verify_model(folder: Path) -> ModelProof:
    """Holds the card of an exported model against its proof. Raises RlfError where the folder has none."""
    if not (folder / PROOF).is_file():
        raise RlfError(f"{folder}: has no {PROOF}. Name a folder that `rlf export` wrote.")
    faults = list(_check_files(folder))
    claims = [_judge("The folder holds the files that were exported.", faults, "each has the hash that was written")]
    run_id = ""
    try:
        proof = json.loads((folder / PROOF).read_text(encoding="utf-8"))
        origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
        with open_store(folder / PROOF_LINEAGE, create=False, read_only=True) as store:
            reader = Reader(store)
            run = reader.get_run(origin["run"])
            run_id = run.record.id
            for claim in _Looks(reader, run, folder, proof, origin).find():
                claims.append(claim)
                if claim.state is ClaimState.WRONG and len(claims) == _NUM_FIRST:
                    break
    except Exception as error:
        if not faults and not isinstance(error, RlfError | OSError | ValueError | LookupError):
            raise  # a defect of rlf
        claims.append(Sentence("The folder can be read.", ClaimState.WRONG, str(error) or type(error).__name__))
    return ModelProof(folder, run_id, hash_path(folder / PROOF), tuple(claims))


def _judge(sentence: str, faults: Sequence[str], proven: str) -> Sentence:
    state = ClaimState.WRONG if faults else ClaimState.PROVEN
    return Sentence(sentence, state, "; ".join(faults) or proven)


def _check_files(folder: Path) -> Iterator[str]:
    try:
        text = (folder / PROOF).read_text(encoding="utf-8")
        proof = json.loads(text)
        known = dict(proof["files"])
    except (ValueError, LookupError, TypeError) as error:
        yield f"{PROOF} cannot be read: {error}"
        return
    if text != json.dumps(proof, indent=1) + "\n":
        yield f"{PROOF} is not as it was written"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
    for name in sorted((known.keys() | found) - {PROOF}):
        if name not in found:
            yield f"{name} is missing"
        elif name not in known:
            yield f"{name} was added"
        elif hash_path(folder / name) != known[name]:
            yield f"{name} changed"


class _Looks:
    """The sentences of one card, each beside what proves it."""

    def __init__(
        self, reader: Reader, run: Run, folder: Path, proof: Mapping[str, Any], origin: Mapping[str, Any]
    ) -> None:
        self._reader, self._run, self._folder = reader, run, folder
        self._proof, self._origin = proof, origin
        self._step = int(origin["step"])

    def find(self) -> Iterator[Sentence]:
        """All of them. One that cannot be looked into is claimed."""
        record = self._run.record
        expected = {"run": record.id, "name": record.name, "step": self._step, "plan_hash": record.plan_hash}
        faults = [] if self._origin == expected else [f"{ORIGIN} names another run, step or plan"]
        yield _judge(f"It is a model of run {record.id}.", faults, f"{ORIGIN} names the run of the lineage")
        yield _judge("The lineage is as it was written.", list(self._check_lineage()), "its chain is whole")
        looks: tuple[tuple[str, Callable[[], Sentence]], ...] = (
            ("The card has what the lineage holds.", self._check_card),
            ("The evaluations' figures are those of their trajectories.", self._check_figures),
            ("The trajectories are what format, tools and limits make of the sampled tokens.", self._check_replay),
            ("The answers are worth what they were given.", self._check_scores),
            ("The model gives these answers.", self._check_answers),
            ("The loss saw the sampled tokens alone.", self._check_certificate),
            ("Few questions of the evaluations were trained on.", self._check_overlap),
            ("The reward cannot be had without being right.", self._check_attack),
        )
        for sentence, look in looks:
            try:
                yield look()
            except (RlfError, OSError, ImportError, ValueError) as error:  # a variable or a package that is not here
                yield Sentence(sentence, ClaimState.CLAIMED, f"it cannot be looked into here: {error}")

    def _check_lineage(self) -> Iterator[str]:
        yield from check_rows(self._reader).faults
        run_id, head = self._run.record.id, self._proof["head"]
        if self._reader.link(run_id, str(head)) is None:
            yield f"link {str(head)[:12]}, which {PROOF} names, is not in the chain"

    def _check_card(self) -> Sentence:
        sentence = "The card has what the lineage holds."
        licence = str(self._proof["licence"])
        card = make_card(self._reader, self._run, self._step, self._folder, licence)
        link = self._reader.link(self._run.record.id, str(self._proof["head"]))
        card = replace(card, head=link)
        faults = []
        if (self._folder / CARD).read_text(encoding="utf-8") != card_markdown(card):
            faults.append(f"{CARD} is not what its lineage gives: {self._find_line(card_markdown(card))}")
        curve = self._folder / CURVE
        if card.image is not None and (not curve.is_file() or curve.read_text(encoding="utf-8") != card.image):
            faults.append(f"{CURVE} is not what its lineage gives")
        if faults and self._proof["rlf"] != __version__:
            return Sentence(
                sentence, ClaimState.CLAIMED, f"it was written by rlf {self._proof['rlf']}: {'; '.join(faults)}"
            )
        return _judge(sentence, faults, f"{CARD} and its curves were written again from the lineage, and are the same")

    def _find_line(self, expected: str) -> str:
        pairs = zip((self._folder / CARD).read_text(encoding="utf-8").splitlines(), expected.splitlines(), strict=False)
        return next((repr(line[:80]) for line, own in pairs if line != own), "its end")

    def _evaluations(self) -> list[Evaluation]:
        return [found for found in self._reader.evaluations(self._run.record.id) if found.step in (0, self._step)]

    def _stored(self, found: Evaluation) -> list[StoredTrajectory]:
        run_id = self._run.record.id
        heads = self._reader.trajectories(run_id, TrajectoryFilter(phase=found.mode, step=found.step))
        stored = self._reader.wholes(run_id, heads)
        whole = [one for one in stored if one is not None]
        if len(whole) != len(heads):
            raise RunError(f"{found.mode} step {found.step}: trajectories are not kept whole")
        return whole

    def _check_figures(self) -> Sentence:
        from rlf.training.evaluation import evaluation_metrics

        faults, num = [], 0
        num_samples = int(self._run.record.plan["spec"].get("eval", {}).get("num_samples", 1))
        for found in self._evaluations():
            scored = [one.scored for one in self._stored(found)]
            own = evaluation_metrics(scored, num_samples if found.mode == _SAMPLED else 1)
            wrong = [
                name
                for name in ("success", "num_questions", "success/low", "success/high", "reward/mean")
                if name in own and not math.isclose(own[name], found.metrics.get(name, math.nan), rel_tol=_SAME)
            ]
            num += 1
            faults += [f"{found.mode} step {found.step}: {name} is {own[name]:.6g}" for name in wrong]
        proven = f"{num} evaluations were computed again from their trajectories"
        return _judge("The evaluations' figures are those of their trajectories.", faults, proven)

    def _spec(self, *, with_rewards: bool = False) -> RunSpec:
        """The plan's spec without what names code or processes: the folder may be anybody's, and none of it is run.

        Raises:
            RlfError: nothing is left that could be played.
        """
        from rlf.spec import RunSpec

        values = deepcopy(self._run.record.plan["spec"])
        if values.get("env"):
            raise RlfError("a world is code, which is not run")
        for tool in values["tools"]:  # their results are recorded
            tool["target"] = {"kind": "http", "url": "http://localhost/"}
        others = [term["name"] for term in values["rewards"] if term["kind"] != "rule"]
        if with_rewards and others:
            raise RlfError(f"terms that are not rules are code, models or tools of others: {', '.join(others)}")
        if not with_rewards:
            values["rewards"] = [{"kind": "rule", "name": "exact_match", "rule": "exact_match"}]
            values.pop("success", None)
        return RunSpec.model_validate({key: each for key, each in values.items() if key not in _OF_ITS_MACHINE})

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        from rlf.chat.encoding import load_tokenizer

        return load_tokenizer(str(self._folder))

    def _check_replay(self) -> Sentence:
        from rlf.apps.keep.replay import replay_all

        stored = [one for found in self._evaluations() for one in self._stored(found)]
        faults = asyncio.run(replay_all(self._spec(), self._tokenizer(), stored))
        sentence = "The trajectories are what format, tools and limits make of the sampled tokens."
        proven = f"{len(stored)} were played again from their tokens and the recorded results of their tools"
        return _judge(sentence, faults[:3], proven)

    def _check_scores(self) -> Sentence:
        from rlf.apps.keep.replay import score_again

        sentence, spec = "The answers are worth what they were given.", self._spec(with_rewards=True)
        faults, num = list[str](), 0
        for found in self._evaluations():
            stored = self._stored(found)
            faults += asyncio.run(score_again(spec, stored, found.step))
            num += len(stored)
        return _judge(sentence, faults[:3], f"{num} answers were scored again by the rules of the plan")

    def _check_answers(self) -> Sentence:
        from rlf.apps.keep.replay import find_disagreeing

        sentence = "The model gives these answers."
        found = [each for each in self._evaluations() if (each.mode, each.step) == (_GREEDY, self._step)]
        if not found:
            return Sentence(sentence, ClaimState.CLAIMED, "it was not evaluated greedily")
        stored = [one for one in self._stored(found[0]) if one.scored.trajectory.num_sampled]
        num, wrong = find_disagreeing(self._folder, stored, time.monotonic() + _MODEL_S, _AGREEING)
        return _judge(
            sentence, wrong[:3], f"it has the tokens of {num} of {len(stored)} greedy answers as its likeliest"
        )

    def _check_certificate(self) -> Sentence:
        from rlf.runs.opening import certified
        from rlf.training.harness import build_chat

        sentence = "The loss saw the sampled tokens alone."
        events = [
            each.data["certificate"] for each in self._reader.events(self._run.record.id) if "certificate" in each.data
        ]
        if not events:
            return Sentence(sentence, ClaimState.CLAIMED, "its lineage has no mask certificate")
        spec = self._spec()
        own = json.loads(json.dumps(asdict(certified(spec, build_chat(spec, self._tokenizer())))))
        faults = [] if own == events[-1] else ["the certificate of its chat format is another one than the lineage has"]
        if faults and self._proof["rlf"] != __version__:
            return Sentence(sentence, ClaimState.CLAIMED, f"it was written by rlf {self._proof['rlf']}: {faults[0]}")
        return _judge(sentence, faults, f"{own['num_turns']} scripted turns were played with its tokenizer and checked")

    def _check_overlap(self) -> Sentence:
        hashes = row_hashes(self._reader, self._run.record.id)
        trained = set(hashes.get(TRAIN, ()))
        evaluated = {each for phase, of_phase in hashes.items() if phase != TRAIN for each in of_phase}
        texts = {self._reader.question(each).strip() for each in trained}
        seen = [each for each in evaluated if each in trained or self._reader.question(each).strip() in texts]
        sentence = f"Of the {len(evaluated)} questions of its run's evaluations, {len(seen)} were trained on."
        return Sentence(
            sentence, ClaimState.PROVEN, f"compared with the {len(trained)} of its training steps, by their text"
        )

    def _check_attack(self) -> Sentence:
        sentence = "The reward cannot be had without being right."
        if not is_present(_ATTACK):
            return Sentence(sentence, ClaimState.CLAIMED, "`rlf rewards attack` is not installed here")
        spec = self._spec(with_rewards=True)
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"path": str(self._folder)})})
        written = [one.scored.trajectory for found in self._evaluations() for one in self._stored(found)]
        if not written:
            return Sentence(sentence, ClaimState.CLAIMED, "it was not evaluated, so that no question is here to try")
        tasks = list({each.task.id: each.task for each in written}.values())
        found = asyncio.run(
            load_function(_ATTACK)(
                spec,
                num_questions=_NUM_ATTACKED,
                seconds=_ATTACK_S,
                step=max(1, self._step),
                texts=list(dict.fromkeys(each.answer for each in written if each.answer))[:_MAX_TEXTS],
                tasks=tasks,
            )
        )
        if not found.findings and not found.is_passed:
            return Sentence(sentence, ClaimState.CLAIMED, found.verdict)
        num = len(found.attempts) + found.num_searched
        sentence = f"Of {num} behaviours without skill, {found.num_hacks} earn {found.share:.0%} of the reward or more."
        reason = f"played on {found.questions} questions of its evaluations, paid by the rules of the plan"
        return Sentence(sentence, ClaimState.PROVEN, f"{reason}: {found.verdict}")
