"""Which token says which characters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_zero.text.tokenizer import Tokenizer

Load = Callable[[str], Tokenizer]
NAMES = ("qwen2.5", "qwen3", "smollm2")


@pytest.mark.parametrize("name", NAMES)
def test_whole_tokens_have_the_characters_they_are_decoded_to(golden_tokenizer: Load, name: str) -> None:
    tokenizer = golden_tokenizer(name)
    ids = tokenizer.encode("Let me see: 12 + 30 = 42.\n<answer>12 + 30</answer>")
    assert tokenizer.piece_lengths(ids) == [len(tokenizer.decode([token_id])) for token_id in ids]
    assert tokenizer.piece_lengths([]) == []


@pytest.mark.parametrize("name", NAMES)
def test_tokens_that_share_a_character(golden_tokenizer: Load, name: str) -> None:
    tokenizer = golden_tokenizer(name)
    text = "a 🦖𝔊 b"
    ids = tokenizer.encode(text)
    lengths = tokenizer.piece_lengths(ids)
    assert sum(lengths) == len(text)
    assert 0 in lengths, "the test's text is to have a character of several tokens"
    whole = [at for at in range(1, len(ids) + 1) if "\N{REPLACEMENT CHARACTER}" not in tokenizer.decode(ids[:at])]
    for at in whole:
        assert sum(lengths[:at]) == len(tokenizer.decode(ids[:at]))


@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_stay_no_characters_are_each_tokens_own(golden_tokenizer: Load, name: str) -> None:
    tokenizer = golden_tokenizer(name)
    ids = tokenizer.encode("𝔊")
    whole, broken = [*[0] * (len(ids) - 1), 1], [*[0] * (len(ids) - 2), 1]
    assert len(ids) > 1
    assert tokenizer.piece_lengths([*ids[:-1], ids[0], *ids, ids[-1], ids[-1]]) == [*broken, 1, *whole, 1, 1]


def test_an_answer_of_broken_characters_takes_no_longer_than_its_length(
    golden_tokenizer: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = golden_tokenizer("smollm2")
    broken = tokenizer.encode("𝔊")[:-1] * 1000
    decode, decoded = tokenizer.decode, []
    monkeypatch.setattr(tokenizer, "decode", lambda ids: decoded.append(len(ids)) or decode(ids))
    lengths = tokenizer.piece_lengths(broken)
    assert sum(lengths) == 1000
    assert max(lengths) == 1
    assert sum(decoded) < 10 * len(broken)


@pytest.mark.parametrize("name", NAMES)
def test_golden_texts(golden_tokenizer: Load, goldens: dict, name: str) -> None:
    tokenizer = golden_tokenizer(name)
    for ids in goldens["encodings"][name]:
        lengths = tokenizer.piece_lengths(ids)
        assert (sum(lengths), len(lengths)) == (len(tokenizer.decode(ids)), len(ids))


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_ids_even_those_that_are_no_text(golden_tokenizer: Load, data: st.DataObject) -> None:
    tokenizer = golden_tokenizer(data.draw(st.sampled_from(NAMES)))
    ids = data.draw(st.lists(st.one_of(st.integers(0, 300), st.integers(0, tokenizer.vocab_size + 50)), max_size=30))
    lengths = tokenizer.piece_lengths(ids)
    assert min(lengths, default=0) >= 0
    assert (sum(lengths), len(lengths)) == (len(tokenizer.decode(ids)), len(ids))
    for end in range(1, len(ids) + 1):
        if lengths[end - 1]:
            assert sum(lengths[:end]) == len(tokenizer.decode(ids[:end]))
