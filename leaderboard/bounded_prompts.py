"""Prompts of a submission, which are small and could be rendered without end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from leaderboard.archive import LIMITS
from mas_envs.episodes.schema import Message
from mas_envs.errors import UserError
from mas_envs.prompts import PromptSet

PLACEHOLDER = re.compile(r"\{(\w+)\}")  # as `mas_envs.prompts` reads them
MOST_PLACEHOLDERS = 64  # in a text of a prompt set


class BoundedPrompts(PromptSet):
    """Texts that are not rendered to more than any line of a submission may hold.

    Such a prompt could not have been handed in, but would be built before that is seen.
    """

    def __init__(self, prompts: PromptSet) -> None:
        """Raises `UserError` for a text with too many placeholders."""
        self.id, self.texts = prompts.id, prompts.texts
        self._places: dict[str, list[str]] = {}
        for text in {text for texts in self.texts.values() for text in texts.values()}:
            self._places[text] = PLACEHOLDER.findall(text)
            if (found := len(self._places[text])) > MOST_PLACEHOLDERS:
                raise UserError(f"{found} placeholders in a text of the prompts; a submission has "
                                f"at most {MOST_PLACEHOLDERS}")  # fmt: skip

    def messages(
        self, agent: str, fields: Mapping[str, str], history: Iterable[Mapping[str, str]] = ()
    ) -> tuple[Message, ...]:
        """As `PromptSet.messages`. Raises `UserError` for what would be too long."""
        history = list(history)
        texts = self.texts.get(agent, {})
        past = sum(self._length(texts.get("history", ""), entry) for entry in history)
        past += self._length(texts.get("intro", ""), fields)
        user = texts.get("user", "")
        length = self._length(user, fields) + self._places.get(user, []).count("history") * past
        if length > LIMITS.line:
            raise UserError(f"a prompt of {length} characters; a line has at most {LIMITS.line}")
        return super().messages(agent, fields, history)

    def _length(self, text: str, fields: Mapping[str, str]) -> int:
        """Of the text and of what is put into it; it is not put in."""
        places = self._places.get(text, ())
        return len(text) + sum(len(fields.get(name, "")) for name in places)
