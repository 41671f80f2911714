"""Makes the folder that the embedded model starts from: a Qwen-shaped config and a small vocabulary, no weights.

    python recipes/countdown_tiny.py FOLDER

The vocabulary is every printable ASCII character, the numbers 10 to 99, and a few pieces of text that a search for an expression
repeats (`` + ``, `` = ``, ``, no`` with its line break), so that one try of a three-number search takes 12 tokens. Any other
character becomes the unknown token. ``docs/quickstart.md`` tells how the weights are made from here.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|unknown|>"]
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
PIECES = [
    " + ", " - ", " * ", " / ", " = ", ", ", ", no\n", ", yes\n", "I give up.\n", "none",
    "Make ", " from ", "user", "assistant", "system",
]  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "use_sliding_window": False,
    "torch_dtype": "float32",
}


def build_tokenizer() -> Tokenizer:
    """Whole pieces and two-digit numbers where the text has them, single characters elsewhere."""
    characters = ["\n", *map(chr, range(32, 127))]
    words = CONTROL + TAGS + PIECES + [str(n) for n in range(10, 100)] + characters
    vocabulary = {word: index for index, word in enumerate(words)}
    assert len(vocabulary) == len(words)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    longest_first = sorted(PIECES, key=len, reverse=True)
    pattern = "|".join([*map(re.escape, longest_first), "[1-9][0-9]", r"[\s\S]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    return tokenizer


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    stop_ids = [tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")]
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<|unknown|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    config = CONFIG | {"vocab_size": tokenizer.get_vocab_size(), "eos_token_id": stop_ids[1]}
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in {
        "tokenizer_config.json": tokenizer_config,
        "config.json": config,
        "generation_config.json": {"eos_token_id": stop_ids},
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
