"""What all sections of a configuration share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Below1 = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
AboveZero = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """Base of all sections: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def refuse_changed(self, keys: tuple[str, ...], where: str, owner: str) -> None:
        """Raises `ValueError` for keys that only `owner` makes use of, unless at their defaults
        (as they stand in a resolved file).
        """
        if changed := self.changed(*keys):
            raise ValueError(f"{where} makes no use of {', '.join(changed)}; only {owner} does")

    def changed(self, *keys: str) -> list[str]:
        """Those of the keys that are not at their defaults."""
        fields = type(self).model_fields
        return sorted(key for key in keys if getattr(self, key) != fields[key].default)
