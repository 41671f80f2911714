"""Train with GRPO: ``uv run train.py``, or ``uv run train.py --config config_24GB.yaml`` on a 24 GB card."""

import sys

from grpo_zero.cli import main

if __name__ == "__main__":
    words = " ".join(sys.argv[1:]).replace("=", " ").split()
    brings_config = {"--config", "-h", "--help"} & {*words} or ("--resume" in words and "auto" not in words)
    sys.exit(main(["train", *([] if brings_config else ["--config", "config.yaml"]), *sys.argv[1:]]))
