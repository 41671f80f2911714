"""Golden prompts, where templates are found, and templates that mean harm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_zero.errors import UserError
from grpo_zero.text.chat import ChatTemplate, find_template, prompt_ids
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.types import Problem

Load = Callable[[str], Tokenizer]
USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3", "smollm2"])
def test_golden_prompts(golden_tokenizer: Load, goldens: dict, name: str) -> None:
    template = ChatTemplate.select("auto", golden_tokenizer(name))
    rendered = [template.render(messages) for messages in goldens["chat"]]
    assert rendered == goldens["chat_text"][name]


def test_qwen3_without_thinking(golden_tokenizer: Load, goldens: dict) -> None:
    template = ChatTemplate.select("auto", golden_tokenizer("qwen3"))
    rendered = [template.render(messages, enable_thinking=False) for messages in goldens["chat"]]
    assert rendered == goldens["chat_text"]["qwen3_enable_thinking_false"]


def test_the_response_start_is_encoded_with_the_prompt(golden_tokenizer: Load) -> None:
    tokenizer = golden_tokenizer("qwen2.5")
    template = ChatTemplate.select("auto", tokenizer)
    problem = Problem(tuple(USER), "Let me think.\n<think>", {}, "key")
    ids = prompt_ids(tokenizer, template, problem)
    text = tokenizer.decode(ids)
    assert text.endswith("<|im_start|>assistant\nLet me think.\n<think>")
    assert ids == tokenizer.encode(text)
    assert ids.count(tokenizer.token_id("<|im_start|>")) == 3


def test_without_a_template_the_message_says_what_to_set(golden_tokenizer: Load) -> None:
    """T13."""
    tokenizer = golden_tokenizer("smollm2")
    with pytest.raises(UserError, match=r"no chat template; set model.chat_template"):
        prompt_ids(tokenizer, None, Problem(tuple(USER), "", {}, "key"))


def test_the_plain_prompt() -> None:
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1?"}]
    assert ChatTemplate.plain().render(messages) == "Add.\n\n1+1?\n\n"


def test_a_template_from_a_file(golden_tokenizer: Load, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{{ bos_token }}Q: {{ messages[0].content }}", encoding="utf-8")
    template = ChatTemplate.select(str(path), golden_tokenizer("smollm2"))
    assert template.render(USER) == "<|im_start|>Q: hi"
    with pytest.raises(UserError, match=r"'nowhere.jinja' is no file"):
        ChatTemplate.select("nowhere.jinja", golden_tokenizer("smollm2"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"chat_template": "A"}}, "A"),
        ({"tokenizer_config.json": {"chat_template": None}}, None),
        ({"chat_template.json": {"chat_template": "B"}, "tokenizer_config.json": {}}, "B"),
        (
            {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "C"}]}},
            "C",
        ),
    ],
)
def test_where_templates_are_found(files: dict, expected: str | None) -> None:
    encoded = {name: json.dumps(value).encode() for name, value in files.items()}
    assert find_template(encoded, "test") == expected
    assert find_template(encoded | {"chat_template.jinja": b"D"}, "test") == "D"


def test_named_templates_without_a_default_are_listed() -> None:
    config = {"chat_template": [{"name": "rag", "template": "x"}, {"name": "tools", "template": "y"}]}
    with pytest.raises(UserError, match="named rag, tools and none named default"):
        find_template({"tokenizer_config.json": json.dumps(config).encode()}, "test")


def test_hugging_face_extras() -> None:
    block = "{% generation %}{{ m | tojson }}{% endgeneration %}"
    source = "{% for m in messages %}" + block + "{% break %}{% endfor %}"
    assert ChatTemplate(source).render([{"content": "é<b>"}]) == '{"content": "é<b>"}'
    year = ChatTemplate("{{ strftime_now('%Y') }}")
    assert len(year.render(USER)) == 4
    assert year.render(USER, strftime_now=lambda _: "x") == "x"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format('') }}",
        "{{ '{:>100000000}'.format(1) }}",
        "{{ ''|attr('__class__') }}",
        "{% include '/etc/passwd' %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ [0] * 1000000000 }}",
        "{{ 2 ** (10 ** 9) }}",
        "{{ 2 ** 64 ** 64 ** 64 ** 64 }}",
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x+n.x %}{% endfor %}",
        "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 1 // 0 }}",
        "{{ messages[7].content }}",
        "{{ 1 + 'a' }}",
        "{{ raise_exception('roles must alternate') }}",
    ],
)
def test_harmful_and_failing_templates_give_a_user_error(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(UserError, match="chat template"):
        ChatTemplate(source).render(USER)
    assert time.monotonic() - start < 5


def test_the_refusal_of_a_template_is_passed_on() -> None:
    with pytest.raises(UserError, match=r"roles \[user\]: roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(USER)


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(UserError, match="syntax error in line 2"):
        ChatTemplate("x\n{% for %}")


def test_plain_is_chosen_by_name(golden_tokenizer: Load) -> None:
    chosen = ChatTemplate.select("plain", golden_tokenizer("qwen2.5"))
    messages = [{"role": "user", "content": "Name a prime."}]
    assert chosen.render(messages) == ChatTemplate.plain().render(messages)


def test_a_template_file_that_is_no_text(golden_tokenizer: Load, tmp_path: Path) -> None:
    path = tmp_path / "binary.jinja"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"binary.jinja is no UTF-8 text .* give another with model.chat_template"):
        ChatTemplate.select(str(path), golden_tokenizer("smollm2"))
