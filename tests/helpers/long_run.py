"""As large a run as a page may meet, generated, and what a browser says of its page.

``python tests/helpers/long_run.py FOLDER`` writes it (3.5 GB), to look at by eye.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.recorded import start_run, write_steps

STEPS = 10_000
SHAPE = {"questions": 32, "answers": 8, "interval": 100}
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
"""Milliseconds after the page was opened."""
FRAMES = """async () => {
  const times = [];
  let last = performance.now();
  for (let at = 0; at < 120; at++) {
    scrollBy(0, 20);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  return times.sort((a, b) => a - b);
}"""
"""Milliseconds of each frame while the page scrolls, ascending."""


def write_long_run(folder: Path) -> Path:
    """Write the run folder; returns it."""
    run = start_run(folder, STEPS, **SHAPE)
    write_steps(run, 0, STEPS, STEPS, **SHAPE)
    return run


if __name__ == "__main__":
    write_long_run(Path(sys.argv[1]))
