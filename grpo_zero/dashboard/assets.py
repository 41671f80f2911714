"""The page's own files, and the chart library from its installed package."""

from __future__ import annotations

import importlib.resources
import importlib.util
from pathlib import Path

from grpo_zero.errors import UserError

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CHARTS = "plotly.min.js"


def page_files() -> dict[str, Path]:
    """The files that may be asked for, by the name after the slash; ``index.html`` is also the page itself.

    Raises:
        UserError: the chart library is not installed.
    """
    folder = Path(str(importlib.resources.files("grpo_zero"))) / "dashboard" / "page"
    files = {path.name: path for path in sorted(folder.iterdir()) if path.suffix in CONTENT_TYPES}
    return {**files, "": files["index.html"], CHARTS: chart_library()}


def chart_library() -> Path:
    """plotly.js, which the Python package of that name brings along.

    Raises:
        UserError: it is not installed.
    """
    found = importlib.util.find_spec("plotly")
    folders = found.submodule_search_locations if found else None
    for folder in folders or ():
        path = Path(folder) / "package_data" / CHARTS
        if path.is_file():
            return path
    raise UserError(
        "The dashboard draws with plotly, which is not installed: pip install 'grpo-zero[dashboard]', "
        "or `uv run --extra dashboard grpo-zero dashboard`."
    )
