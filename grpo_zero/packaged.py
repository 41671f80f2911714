"""The models that come with the package: ``embedded:NAME``. No torch here."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from grpo_zero.errors import UserError, nearest

EMBEDDED_PREFIX = "embedded:"


def embedded_folder(path: str) -> Path | None:
    """The folder of ``embedded:NAME``; None where ``path`` is something else.

    Raises:
        UserError: no such model.
    """
    if not path.startswith(EMBEDDED_PREFIX):
        return None
    name = path.removeprefix(EMBEDDED_PREFIX)
    root = Path(str(importlib.resources.files("grpo_zero"))) / "embedded"
    known = sorted(folder.name for folder in root.glob("*/") if (folder / "config.json").is_file())
    if name not in known:
        raise UserError(
            f"There is no packaged model {name!r}; expected one of {', '.join(known) or 'none'}: "
            f"write embedded:NAME with one of these.{nearest(name, known)}"
        )
    return root / name
