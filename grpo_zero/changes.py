"""What a resumed run may change of its config. Each option says so where it is declared (``may_change``). No torch here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from grpo_zero.config import SECTIONS, Config
from grpo_zero.errors import UserError
from grpo_zero.settings import show


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs."""

    key: str
    before: object
    after: object
    may_change: bool

    def __str__(self) -> str:
        return f"{self.key} {show(self.before)} -> {show(self.after)}"


def changes(before: Config, after: Config) -> list[Change]:
    """The keys that differ, in the order of the schema."""
    found = []
    for section, section_type in SECTIONS.items():
        for field in dataclasses.fields(section_type):
            old, new = (getattr(getattr(config, section), field.name) for config in (before, after))
            if old != new:
                found.append(Change(f"{section}.{field.name}", old, new, field.metadata["may_change"]))
    return found


def check_changes(before: Config, after: Config) -> list[str]:
    """Sentences for the log about what changed since a run began.

    Raises:
        UserError: a key changed that the run's results depend on; all such keys are named.
    """
    found = changes(before, after)
    refused = [change for change in found if not change.may_change]
    if refused:
        raise UserError(
            f"A run that goes on keeps what its results depend on, but {', '.join(map(str, refused))}: leave "
            f"{'it' if len(refused) == 1 else 'them'} as before, or start a new run from its model."
        )
    return [f"changed since the run began: {', '.join(map(str, found))}"] if found else []
