"""``grpo-zero chat``: talk to a model, or pose it Countdown problems and see them judged."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.observe.terminal import show
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.policy import Policy, load_policy, make_engine
from grpo_zero.train.problems import make_task


def chat(config: Config, *, problems: bool) -> None:
    """Read lines from standard input until it ends; an empty line or Ctrl-D leaves.

    With ``problems`` each line is numbers and a target (``3 4 5 = 35``) and the answer is judged; otherwise lines are turns of
    one conversation.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is typed or piped in need not be UTF-8
    policy = load_policy(config.model, init_seed=config.training.random_seed)
    show("numbers = target, e.g. 3 4 5 = 35; an empty line leaves" if problems else "an empty line leaves")
    messages: list[Mapping[str, str]] = []
    turn = 0
    while line := _read_line():
        turn += 1
        if problems:
            _pose(config, policy, line, turn)
            continue
        messages.append({"role": "user", "content": line})
        prompt = policy.tokenizer.encode(policy.template.render(messages))
        text, _ = _answer(config, policy, prompt, turn)
        show(text)
        messages.append({"role": "assistant", "content": text})


def parse_problem(line: str) -> dict[str, list[int] | int]:
    """``3 4 5 = 35`` as a Countdown row. Raises UserError for anything else."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:[\s,]+\d{1,12})*)\s*=\s*(\d{1,12})\s*", line, re.ASCII)
    if match is None:
        raise UserError(
            f"{line[:100]!r} is no problem: write the numbers, an equals sign and the target, as in 3 4 5 = 35."
        )
    return {"nums": [int(number) for number in re.findall(r"\d+", match[1])], "target": int(match[2])}


def _pose(config: Config, policy: Policy, line: str, turn: int) -> None:
    task = make_task(config)
    try:
        problem = task.problem(parse_problem(line))
    except UserError as error:
        show(str(error))
        return
    text, is_finished = _answer(config, policy, policy.prompt_ids(problem), turn)
    verdict = task.verify(problem, text, finished=is_finished)
    show(f"{problem.response_start}{text}\n[{verdict.reason}, reward {verdict.reward:g}]")


def _answer(config: Config, policy: Policy, prompt: list[int], turn: int) -> tuple[str, bool]:
    settings = config.evaluation
    context = policy.decoder.spec.context
    room = min(config.evaluation_gen_len, context - len(prompt))
    if room < 1:
        raise UserError(
            f"The conversation has {len(prompt)} tokens and the model's context is {context}: start a new one."
        )
    engine = make_engine(policy, config.training)
    params = SamplingParams(room, settings.temperature, settings.top_k or None, settings.top_p)
    [[completion]] = engine.generate([prompt], 1, params, seed_key=(config.training.random_seed, "chat", turn))
    return policy.text(completion), completion.is_finished


def _read_line() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""
