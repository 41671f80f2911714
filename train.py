"""Train with GRPO: ``uv run train.py``, or ``uv run train.py --config config_24GB.yaml`` on a 24 GB card."""

import sys

from grpo_zero.cli import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not any(argument.startswith(("--config", "--resume", "-h", "--help")) for argument in arguments):
        arguments = ["--config", "config.yaml", *arguments]
    sys.exit(main(["train", *arguments]))
