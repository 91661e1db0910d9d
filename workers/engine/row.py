"""One request on its way through the engine."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from workers.engine.answer import Completion, FinishReason
from workers.engine.transcript import Transcript

if TYPE_CHECKING:
    import torch

    from workers.engine.grammar import Grammar
    from workers.engine.sampler import Sampler
    from workers.engine.tokens import Tokens


class Row:
    """A prompt, what has followed so far, and the future of its completion, which may be cancelled."""

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        limit: int,
        sampler: "Sampler",
        grammar: "Grammar | None",
        stops: Sequence[str],
        tokens: "Tokens",
    ) -> None:
        self.prompt = prompt
        self.future: Future[Completion] = Future()
        self.last = prompt[-1]
        self.made = 0
        self._limit = limit
        self._sampler = sampler
        self._grammar = grammar
        self._transcript = Transcript(stops)
        self._tokens = tokens

    @property
    def held(self) -> int:
        """Tokens whose keys and values it holds or is about to hold."""
        return len(self.prompt) + self.made

    def take(self, logits: "torch.Tensor") -> Completion | None:
        """Chooses the next token; the completion where it was the last. Raises `GrammarError`."""
        grammar = self._grammar
        self.last = self._sampler.choose(logits, grammar.allowed() if grammar else None)
        self.made += 1
        reason = self._record(self.last)
        if reason is None:
            return None
        return Completion(self._transcript.text(), reason, len(self.prompt), self.made)

    def _record(self, token: int) -> FinishReason | None:
        if token in self._tokens.ends or self._transcript.add(self._tokens.piece(token)):
            return FinishReason.STOP
        if self._grammar:
            self._grammar.accept(token)
            if self._grammar.is_complete:
                return FinishReason.STOP
        return FinishReason.LENGTH if self.made >= self._limit else None

    def resolve(self, outcome: Completion | Exception) -> None:
        """Hands the outcome over, unless the request was cancelled meanwhile."""
        if not self.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
