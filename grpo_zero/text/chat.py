"""Chat messages to the text of a prompt, and a problem to its prompt ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from grpo_zero.errors import UserError
from grpo_zero.text.sandbox import make_environment, render_bounded
from grpo_zero.text.tokenizer import Tokenizer, read_json
from grpo_zero.types import Problem

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] + '\\n\\n' }}{% endfor %}"
"""The plain prompt: each message's text followed by an empty line, no roles and no markers."""

_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template's own expressions can raise while it renders."""
_COMPILE_FAULTS = (jinja2.TemplateError, ArithmeticError, MemoryError, RecursionError, SyntaxError, ValueError)
"""What Jinja and Python can raise over a template's text; MemoryError is Python's word for one that is nested too deeply."""
MAX_SOURCE_CHARS = 200_000
"""Of a template; published ones have up to 30,000."""


class ChatTemplate:
    """A model's Jinja chat template, rendered in a sandbox (see ``sandbox.py``)."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        origin: str = "this model",
    ) -> None:
        """``origin`` tells in messages where it came from. Raises ``UserError`` for bad syntax."""
        self.source = source
        self.origin = origin
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        if len(source) > MAX_SOURCE_CHARS:
            raise UserError(
                f"The chat template of {origin} has {len(source):,} characters; expected at most {MAX_SOURCE_CHARS:,}: give "
                "another with model.chat_template."
            )
        try:
            self._template = make_environment().from_string(source)
        except _COMPILE_FAULTS as error:
            where = f" in line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            reason = str(getattr(error, "message", None) or error or type(error).__name__)[:200]
            raise UserError(
                f"The chat template of {origin} has a syntax error{where} "
                f"({reason}); mend it, or give another with model.chat_template."
            ) from error

    @classmethod
    def plain(cls) -> ChatTemplate:
        """The plain prompt (``PLAIN_TEMPLATE``) for base models; only used when asked for."""
        return cls(PLAIN_TEMPLATE, origin="the plain prompt")

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer) -> ChatTemplate | None:
        """The template among the tokenizer's files, or ``None`` when they hold none."""
        source = find_template(tokenizer.files, tokenizer.origin)
        if source is None:
            return None
        return cls(
            source,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            origin=tokenizer.origin,
        )

    @classmethod
    def select(cls, setting: str, tokenizer: Tokenizer) -> ChatTemplate:
        """``auto``: the tokenizer's own. ``plain``: the plain prompt. Else: a file with a template.

        Raises ``UserError`` when ``auto`` finds none (fault T13), or when there is no such file.
        """
        if setting == "plain":
            return cls.plain()
        if setting == "auto":
            return _require(cls.of_tokenizer(tokenizer), tokenizer.origin)
        path = Path(setting)
        if not path.is_file():
            raise UserError(
                f"The chat template {setting!r} is no file; expected auto, plain, or the path of a Jinja template."
            )
        return cls(
            _decoded(path.read_bytes(), setting),
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            origin=setting,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt's text, ready for ``Tokenizer.encode``.

        ``variables`` reach the template by name (Qwen3: ``enable_thinking=False``). A template that
        calls ``strftime_now`` prints today's date; pass ``strftime_now=lambda _: "..."`` to fix it.
        Raises ``UserError`` when the template refuses the messages, fails, or breaks its bounds.
        """
        values = {
            **self._tokens,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **variables,
        }
        try:
            return render_bounded(self._template, values)
        except _TEMPLATE_FAULTS as error:
            roles = ", ".join(str(message.get("role")) for message in messages)[:200]
            raise UserError(
                f"The chat template of {self.origin} can't render messages with roles [{roles}]: "
                f"{str(error)[:300] or type(error).__name__}; change the messages, or give another "
                f"template with model.chat_template."
            ) from error


def prompt_ids(
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    problem: Problem,
    **variables: Any,
) -> list[int]:
    """Ids of a problem's prompt: its messages, then the start of the response.

    Both are one text when they are encoded, so the response start is tokenized as it would be in a
    whole transcript. ``variables`` as for ``ChatTemplate.render``. Raises ``UserError`` without a
    template.
    """
    rendered = _require(template, tokenizer.origin).render(problem.messages, **variables)
    return tokenizer.encode(rendered + problem.response_start)


def find_template(files: Mapping[str, bytes], origin: str) -> str | None:
    """The chat template in a folder's files, or ``None``.

    Looked for in chat_template.jinja, chat_template.json and tokenizer_config.json, in that order;
    of several named templates it is the one called ``default``. Raises ``UserError`` when there is
    no such one.
    """
    if "chat_template.jinja" in files:
        return _decoded(files["chat_template.jinja"], f"chat_template.jinja in {origin}")
    value = read_json(files, "chat_template.json", origin).get("chat_template")
    if value is None:
        value = read_json(files, "tokenizer_config.json", origin).get("chat_template")
    if isinstance(value, list) and all(
        isinstance(entry, dict) and {"name", "template"} <= entry.keys() for entry in value
    ):
        value = {str(entry["name"]): entry["template"] for entry in value}
    if isinstance(value, Mapping):
        if "default" not in value:
            raise UserError(
                f"{origin} holds chat templates named {', '.join(value)[:200]} and none named default; "
                f"write the one you want to a file and give its path with model.chat_template."
            )
        value = value["default"]
    if value is not None and not isinstance(value, str):
        raise UserError(
            f"The chat template of {origin} is a {type(value).__name__}; expected a text, or a list of named ones: give another "
            "with model.chat_template."
        )
    return value


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place} is no UTF-8 text ({error}): mend it, or give another with model.chat_template."
        ) from error


def _require(template: ChatTemplate | None, origin: str) -> ChatTemplate:
    if template is None:
        raise UserError(
            f"The tokenizer in {origin} has no chat template; set model.chat_template to a file "
            f"with one, or to plain for a prompt without roles (right for base models)."
        )
    return template
