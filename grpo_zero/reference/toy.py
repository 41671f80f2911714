"""A reasoner small enough for NumPy: 504 numbers that learn by the reference alone, in seconds, and three ways to break it.

The question is a number, 1 to 12. An answer is a walk from 0: ``+1``, ``+2`` and ``+5`` move, ``hm`` moves nothing, and two
tokens end it: ``.`` stops, ``=`` writes the question's number down and stops. It is right if the walk stands on the number when
it ends, and cut off after 16 tokens. So an answer takes several steps, a checker needs no model, longer is possible without
being better, and a checker that reads only what was written down can be fooled by ``=``.

The policy is a table of logits by what remains to walk and by the token before; nothing else is learned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from grpo_zero.reference.advantages import advantages
from grpo_zero.reference.losses import policy_loss
from grpo_zero.reference.softmax import entropy, log_softmax, token_logprobs_gradient
from grpo_zero.reference.statistics import rollout_statistics, zero_variance_probability

TOKENS = ("+1", "+2", "+5", "hm", ".", "=")
MOVES = np.array([1, 2, 5, 0, 0, 0])
STOP, CLAIM = 4, 5
LARGEST = 12
MAX_LENGTH = 16
NUM_STATES = LARGEST + 2
"""What remains: 0 to 12, and 13 for having walked too far."""


@dataclass(frozen=True, slots=True)
class ToyConfig:
    """A run of the toy. The defaults learn; each breakage is one change."""

    num_steps: int = 200
    num_questions: int = 12
    group_size: int = 8
    learning_rate: float = 8.0
    average: str = "token"
    compare: str = "group_std"
    """How a reward becomes an advantage: compared with its group and scaled (``group_std``), compared only (``mean``), or not
    compared at all (``none``)."""
    reward: str = "right"
    """``right`` pays a right walk; ``written`` pays the number written down, however it came there."""
    pays_all: float = 0.0
    """Added to every reward: no comparison notices it."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of one step, flat: answer b is row b."""

    questions_B: np.ndarray
    tokens: list[np.ndarray]
    contexts: list[np.ndarray]
    """Of each token: the row of the table it was drawn from."""
    right_B: np.ndarray
    claimed_B: np.ndarray
    finished_B: np.ndarray


def new_table() -> np.ndarray:
    """Logits ``[contexts, tokens]`` of a policy that knows nothing: all equal."""
    return np.zeros((NUM_STATES * len(TOKENS), len(TOKENS)))


def context(remaining: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """Row of the table for what remains to walk and the token before (an ending one stands for the beginning)."""
    return np.where(remaining < 0, NUM_STATES - 1, remaining) * len(TOKENS) + previous


def sample(table: np.ndarray, questions_B: np.ndarray, rng: np.random.Generator) -> Answers:
    """One answer to each entry of ``questions_B``."""
    probs = np.exp(log_softmax(table))
    cumulative = probs.cumsum(-1)
    position_B, previous_B = np.zeros(len(questions_B), int), np.full(len(questions_B), STOP)
    running_B = np.ones(len(questions_B), bool)
    drawn, rows, alive = [], [], []
    for _ in range(MAX_LENGTH):
        context_B = context(questions_B - position_B, previous_B)
        token_B = (rng.random(len(questions_B))[:, None] > cumulative[context_B]).sum(-1).clip(max=len(TOKENS) - 1)
        drawn.append(token_B)
        rows.append(context_B)
        alive.append(running_B)
        position_B = np.where(running_B, position_B + MOVES[token_B], position_B)
        previous_B = token_B
        running_B = running_B & (token_B != STOP) & (token_B != CLAIM)
    length_B = np.sum(alive, axis=0)
    tokens_BT, contexts_BT = np.array(drawn).T, np.array(rows).T
    last_B = tokens_BT[np.arange(len(questions_B)), length_B - 1]
    finished_B = ~running_B
    return Answers(
        questions_B,
        [row[:length] for row, length in zip(tokens_BT, length_B, strict=True)],
        [row[:length] for row, length in zip(contexts_BT, length_B, strict=True)],
        finished_B & (position_B == questions_B),
        finished_B & (last_B == CLAIM),
        finished_B,
    )


def rewards_of(answers: Answers, config: ToyConfig) -> np.ndarray:
    """``[B]``: what the configured checker pays."""
    paid_B = answers.right_B | (answers.claimed_B & (config.reward == "written"))
    return paid_B + config.pays_all


def logprobs_of(table: np.ndarray, answers: Answers) -> list[np.ndarray]:
    """Log-probs of each answer's tokens under the table, nats."""
    logprobs = log_softmax(table)
    return [logprobs[c, y] for c, y in zip(answers.contexts, answers.tokens, strict=True)]


def loss(
    logprobs: list[np.ndarray], old_logprobs: list[np.ndarray], advantages_B: np.ndarray, average: str
) -> tuple[float, list[np.ndarray]]:
    """``losses.policy_loss`` for answers of the toy's length."""
    return policy_loss(logprobs, old_logprobs, advantages_B, average=average, max_length=MAX_LENGTH)


def loss_gradient(
    table: np.ndarray, answers: Answers, advantages_B: np.ndarray, average: str
) -> tuple[float, np.ndarray]:
    """The loss of one update, and its derivative with respect to every logit of the table."""
    logprobs = logprobs_of(table, answers)
    value, slopes = loss(logprobs, logprobs, advantages_B, average)
    contexts_T, tokens_T = np.concatenate(answers.contexts), np.concatenate(answers.tokens)
    gradient = np.zeros_like(table)
    np.add.at(gradient, contexts_T, token_logprobs_gradient(table[contexts_T], tokens_T, np.concatenate(slopes)))
    return value, gradient


def success_probability(table: np.ndarray) -> np.ndarray:
    """``[LARGEST]``: chance of a right answer to 1 .. 12, exactly: the walks are followed all at once, step by step."""
    walks = LARGEST + 1  # what remains, 0 to 12; who has walked too far can't come back
    probs = np.exp(log_softmax(table)).reshape(NUM_STATES, len(TOKENS), len(TOKENS))[:walks]
    chance = np.zeros((LARGEST, walks, len(TOKENS)))  # of each question: by what remains and the token before
    chance[np.arange(LARGEST), np.arange(1, walks), STOP] = 1.0
    success = np.zeros(LARGEST)
    for _ in range(MAX_LENGTH):
        step = np.einsum("qrp,rpy->qry", chance, probs)
        success += step[:, 0, STOP] + step[:, 0, CLAIM]
        chance = np.zeros_like(chance)
        for token in range(STOP):
            chance[:, : walks - MOVES[token], token] = step[:, MOVES[token] :, token]
    return success


def train(config: ToyConfig) -> list[dict[str, float]]:
    """GRPO on the table by plain gradient descent.

    Returns:
        One dict a step: rollout statistics, ``claimed_share``, ``entropy`` (nats, mean over the answers' tokens), ``grad_norm``,
        ``expected_zero_variance_share`` (mean over the step's questions of ``p^G + (1-p)^G`` with their exact p) and
        ``zero_variance_sd``, the standard deviation of the observed share around it.
    """
    rng = np.random.default_rng(config.seed)
    table, history = new_table(), []
    shape = (config.num_questions, config.group_size)
    for _ in range(config.num_steps):
        questions_P = rng.integers(1, LARGEST + 1, config.num_questions)
        answers = sample(table, questions_P.repeat(config.group_size), rng)
        rewards_PG = rewards_of(answers, config).reshape(shape)
        advantages_PG = {
            "group_std": advantages(rewards_PG),
            "mean": advantages(rewards_PG, scale="none"),
            "none": rewards_PG,
        }[config.compare]
        _, gradient = loss_gradient(table, answers, advantages_PG.reshape(-1), config.average)
        expected_P = zero_variance_probability(success_probability(table), config.group_size)[questions_P - 1]
        lengths_PG = np.array([len(tokens) for tokens in answers.tokens]).reshape(shape)
        facts = rollout_statistics(
            lengths_PG, answers.right_B.reshape(shape), answers.finished_B.reshape(shape), rewards_PG
        )
        facts |= {
            "claimed_share": float(answers.claimed_B.mean()),
            "expected_zero_variance_share": float(expected_P.mean()),
            "zero_variance_sd": float(np.sqrt((expected_P * (1 - expected_P)).sum()) / config.num_questions),
            "entropy": float(entropy(table[np.concatenate(answers.contexts)]).mean()),
            "grad_norm": float(np.linalg.norm(gradient)),
        }
        history.append(facts)
        table = table - config.learning_rate * gradient
    return history


WORKING = ToyConfig()
_EAGER = replace(WORKING, compare="mean", learning_rate=30.0, pays_all=3.0)
BREAKAGES = {
    "no baseline": (_EAGER, replace(_EAGER, compare="none")),
    "length bias": (WORKING, replace(WORKING, average="sequence")),
    "hackable reward": (WORKING, replace(WORKING, reward="written")),
}
"""Each as (healthy, broken), one change apart; ``docs/algorithms.md`` tells their signatures in the curves."""
