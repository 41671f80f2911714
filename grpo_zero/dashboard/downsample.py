"""Fewer points for a chart, such that no spike is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


def kept_rows(series: Sequence[NDArray[np.float64]], max_points: int) -> NDArray[np.int64]:
    """Which rows to draw of columns that share their rows: all, or in each of equal stretches every column's least and greatest.

    Args:
        series: columns of one length; NaN is no number.
        max_points: at least as many rows as columns times 2; never more than this are kept, the first and last among them.

    Returns:
        Row numbers, ascending.
    """
    num_rows = len(series[0])
    if num_rows <= max_points:
        return np.arange(num_rows)
    num_stretches = max(1, (max_points - 2) // (2 * len(series)))
    edges = np.linspace(0, num_rows, num_stretches + 1).astype(np.int64)
    kept = {0, num_rows - 1}
    for start, end in pairwise(edges):
        for column in series:
            stretch = column[start:end]
            if not np.isnan(stretch).all():
                kept |= {start + int(np.nanargmin(stretch)), start + int(np.nanargmax(stretch))}
    return np.array(sorted(kept), dtype=np.int64)
