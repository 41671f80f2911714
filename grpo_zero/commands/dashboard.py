"""``grpo-zero dashboard``: serve the page until Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from grpo_zero.dashboard.run_folders import check_paths, find_runs
from grpo_zero.dashboard.server import DashboardServer
from grpo_zero.errors import UserError

NICENESS = 10
"""The page waits for the run, not the run for the page."""


def serve(paths: Sequence[Path], host: str, port: int) -> None:
    """Serve the runs at ``paths`` until Ctrl-C.

    Raises:
        UserError: a path is no folder, the chart library is missing, or the address cannot be used.
    """
    check_paths(paths)
    os.nice(NICENESS)
    try:
        server = DashboardServer(paths, host, port)
    except OSError as error:
        raise UserError(
            f"The dashboard cannot listen at {host}, port {port} ({error.strerror}): give another --host or --port."
        ) from error
    print(f"{len(find_runs(paths))} runs; open {server.url}  (Ctrl-C ends it)", flush=True)
    if server.gate.token:
        print(
            "note: whoever can reach this address and has the token reads these runs; the connection is not encrypted"
        )
    try:
        server.serve_forever()
    finally:
        server.server_close()
