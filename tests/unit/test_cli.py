"""The command line: help at once, and every mistake one sentence, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import edit_json, run_config, run_settings
from safetensors.torch import load_file, save_file

from grpo_zero.checkpoint.source import open_source
from grpo_zero.cli import main, parse
from grpo_zero.observe.files import read_rows
from grpo_zero.train.checkpoints import save_model
from grpo_zero.train.policy import load_policy

COMMANDS = ("train", "sft", "eval", "chat", "export", "check-task", "plan", "bench", "doctor", "report")

HELP = """
import contextlib, io, sys
from grpo_zero.cli import main

for arguments in ([], *([name] for name in sys.argv[1:])):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            main([*arguments, "--help"])
    except SystemExit as stop:
        assert stop.code == 0
    assert "usage: grpo-zero" in out.getvalue()
slow = {"torch", "transformers", "tensorboard", "pyarrow", "tokenizers", "numpy", "matplotlib", "rich"} & set(sys.modules)
assert not slow, slow
"""


def test_help_of_every_command_starts_at_once_and_without_torch() -> None:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", HELP, *COMMANDS], check=True, timeout=60)
        seconds.append(time.perf_counter() - start)
        if seconds[-1] < 1.5:
            return
    pytest.fail(f"--help took {seconds} s")


def test_help_names_every_command_and_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    assert "training.learning_rate (float, 1e-05): Learning rate of AdamW." in shown
    assert "--resume" in shown


@pytest.mark.parametrize("arguments", [[], ["fly"], ["train", "--fast"], ["export", "a"]])
def test_usage_errors_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: grpo-zero" in capsys.readouterr().err


def test_a_run_without_config_takes_the_quickstart() -> None:
    options = parse(["train", "training.max_steps=3"])
    assert options.config is None
    assert options.overrides == ["training.max_steps=3"]


# Bad input. Each case gets a working folder with `model` (whole, with weights) and `rows.jsonl`, spoils something, and names
# the arguments and the words that the message must hold.

Spoil = Callable[[Path], object]
ROWS = [{"nums": [i, 1], "target": i + 1} for i in range(1, 20)]


def nothing(folder: Path) -> None:
    pass


def cut(name: str, num_bytes: int) -> Spoil:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:num_bytes])


def config_json(**changes: object) -> Spoil:
    return lambda folder: edit_json(folder / "model" / "config.json", **changes)


def weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model" / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model" / "model.safetensors")

    return spoil


def rows(*more: object) -> Spoil:
    """``rows.jsonl`` with ``more`` at the end; texts go in as they are."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in more]
    return lambda folder: (folder / "rows.jsonl").write_text("\n".join([*map(json.dumps, ROWS), *lines]) + "\n")


def remove(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def no_chat_template(folder: Path) -> None:
    edit_json(folder / "model" / "tokenizer_config.json", chat_template=None)


def write(name: str, text: str) -> Spoil:
    return lambda folder: (folder / name).write_text(text)


def old_run(folder: Path) -> None:
    (folder / "runs" / "new").mkdir(parents=True)
    (folder / "runs" / "new" / "config.yaml").write_text("")


CASES: dict[str, tuple[Spoil, list[str], list[str]]] = {
    # Configuration.
    "missing config": (nothing, ["train", "--config", "nope.yaml"], ["nope.yaml", "quickstart"]),
    "unknown key": (nothing, ["train", "training.lerning_rate=1"], ["training.lerning_rate", "'learning_rate'"]),
    "broken yaml": (write("bad.yaml", "model: ["), ["train", "--config", "bad.yaml"], ["bad.yaml", "YAML"]),
    "not divisible": (nothing, ["train", "training.batch_size=9"], ["9 / 2 = 4.50", "8 (4 answers each)", "10"]),
    "one answer a question": (nothing, ["train", "training.batch_size=2"], ["one answer per question", "4 or more"]),
    "unknown task": (nothing, ["train", "data.task=countdwon"], ["'countdwon'", "'countdown'"]),
    "prompt without target": (nothing, ["train", "data.prompt=Use {nums}."], ["target"]),
    # The model.
    "missing model": (
        nothing,
        ["train", "model.pretrained_model_path=Qwen2.5-3B-Instruct"],
        ["hf download", "packaged"],
    ),
    "missing gguf": (nothing, ["train", "model.pretrained_model_path=no.gguf"], ["no.gguf", "check the path"]),
    "unknown packaged": (nothing, ["train", "model.pretrained_model_path=embedded:tiny"], ["'tiny'", "countdown-tiny"]),
    "missing weights": (remove("model/model.safetensors"), ["train"], ["no model.safetensors"]),
    "truncated safetensors": (
        cut("model/model.safetensors", 5000),
        ["train"],
        ["model.safetensors (5,000 bytes)", "again"],
    ),
    "wrong shapes": (
        weights(lambda t: t.update({"model.norm.weight": torch.ones(7)})),
        ["train"],
        ["model.norm.weight", "[7]", "[32]"],
    ),
    "missing tensor": (weights(lambda t: t.pop("model.norm.weight")), ["train"], ["lacks", "model.norm.weight"]),
    "other sizes": (config_json(intermediate_size=99), ["train"], ["99", "config.json"]),
    "unknown architecture": (config_json(model_type="mamba"), ["train"], ["'mamba'", "qwen2, qwen3, llama"]),
    "broken config.json": (cut("model/config.json", 30), ["train"], ["config.json", "not readable JSON"]),
    "no tokenizer": (remove("model/tokenizer.json"), ["train"], ["tokenizer.json"]),
    "no chat template": (no_chat_template, ["train"], ["no chat template", "model.chat_template", "plain"]),
    "context too short": (config_json(max_position_embeddings=47), ["train"], ["48 tokens", "47", "max_gen_len"]),
    "no gpu": (nothing, ["train", "model.device=cuda"], ["'cuda'", "model.device=cpu"]),
    # The data.
    "missing data": (nothing, ["train", "data.path=nope"], ["nope", "'generate'"]),
    "empty data": (write("rows.jsonl", "\n"), ["train"], ["rows.jsonl", "no rows"]),
    "not json": (rows("{nums"), ["train"], ["rows.jsonl line 20", "not JSON"]),
    "no target": (rows({"nums": [1, 2]}), ["train"], ["rows.jsonl line 20", "'target'"]),
    "malformed number": (rows({"nums": [1, "two"], "target": 3}), ["train"], ["line 20", "'two'"]),
    "unsolvable": (rows({"nums": [2, 2], "target": 77}, *ROWS[:6]), ["train"], ["[2, 2]", "77"]),
    "unsolvable held out": (rows({"nums": [2, 2], "target": 77}), ["train"], ["[2, 2]", "77"]),
    "too few rows": (nothing, ["train", "data.test_size=19"], ["19"]),
    "prompts too long": (nothing, ["train", "training.max_prompt_len=5"], ["max_prompt_len = 5", "the shortest"]),
    "range used up": (
        nothing,
        ["train", "data.path=generate", "data.target_range=[2, 3]", "data.number_range=[1, 2]"],
        ["rows"],
    ),
    # The run folder.
    "run exists": (old_run, ["train", "training.run_name=new"], ["runs/new", "--resume", "run_name"]),
    "runs is a file": (write("runs", ""), ["train"], ["runs", "training.log_dir"]),
    "resume nothing": (nothing, ["train", "--resume", "nope"], ["nope", "config.yaml"]),
    "resume with config": (old_run, ["train", "--resume", "runs/new", "--config", "quickstart"], ["--config"]),
    "resume another run": (
        old_run,
        ["train", "--resume", "runs/new", "training.learning_rate=3", "training.max_steps=7"],
        ["training.learning_rate", "-> 3.0: leave it"],
    ),
    # The other commands.
    "sft without file": (nothing, ["sft", "sft.path=nope.jsonl"], ["nope.jsonl", "prompt and response"]),
    "sft bad line": (write("d.jsonl", '{"prompt": 1}'), ["sft", "sft.path=d.jsonl"], ["Line 1 of d.jsonl"]),
    "sft no rows": (write("d.jsonl", ""), ["sft", "sft.path=d.jsonl"], ["d.jsonl", "no rows"]),
    "sft output in use": (nothing, ["sft", "sft.output=model"], ["'model'", "already"]),
    "sft output is a file": (nothing, ["sft", "sft.output=rows.jsonl"], ["'rows.jsonl'", "already"]),
    "eval on nothing": (nothing, ["eval", "data.test_size=0", "training.eval_interval=0"], ["data.test_size"]),
    "eval no model": (nothing, ["eval", "--model", "Qwen2.5-3B"], ["Qwen2.5-3B"]),
    "eval json nowhere": (nothing, ["eval", "--json", "no/such/file.json"], ["no/such"]),
    "eval no samples": (nothing, ["eval", "--samples", "0"], ["--samples is 0"]),
    "eval output nowhere": (nothing, ["eval", "--output", "no/such/a.jsonl"], ["--output", "no/such"]),
    "eval output in use": (nothing, ["eval", "--output", "rows.jsonl"], ["rows.jsonl exists already"]),
    "eval output of another kind": (nothing, ["eval", "--output", "a.txt"], ["--output is a.txt", ".jsonl"]),
    "eval second output in use": (
        write("a-compared.jsonl", ""),
        ["eval", "--output", "a.jsonl", "--compare", "model"],
        ["a-compared.jsonl exists already"],
    ),
    "eval compare nothing": (nothing, ["eval", "--compare", "nope"], ["nope"]),
    "eval compare no file": (nothing, ["eval", "--compare", "nope.jsonl"], ["no file nope.jsonl"]),
    "eval compare no answers": (nothing, ["eval", "--compare", "rows.jsonl"], ["rows.jsonl line 1", "its model"]),
    "eval answers of a model": (nothing, ["eval", "--answers", "x.jsonl", "--model", "model"], ["--model", "leave"]),
    "eval answers with settings": (nothing, ["eval", "--answers", "x.jsonl"], ["--answers", "data.task=countdown"]),
    "chat no model": (nothing, ["chat", "--model", "nope.gguf"], ["nope.gguf"]),
    "export no model": (nothing, ["export", "nope.gguf", "out"], ["nope.gguf"]),
    "export target in use": (nothing, ["export", "model", "model"], ["model already exists"]),
    "export run without checkpoint": (old_run, ["export", "runs/new", "out"], ["runs/new", "without a checkpoint"]),
    "bench unknown": (nothing, ["bench", "W9"], ["'W9'", "W1, W2, quickstart, GPU-0.5B"]),
    "bench json nowhere": (nothing, ["bench", "quickstart", "--json", "no/such/file.json"], ["no/such"]),
    "bench nothing": (nothing, ["bench", "quickstart", "--repeats", "0"], ["--repeats is 0"]),
    "bench without its model": (nothing, ["bench", "W1"], ["W1", "--model"]),
    "bench bad setting": (nothing, ["bench", "quickstart", "training.max_gen_len=0"], ["training.max_gen_len is 0"]),
    "bench without a GPU": (nothing, ["bench", "GPU-0.5B", "--model", "model"], ["no usable cuda device"]),
}


@pytest.fixture(scope="module")
def whole_model(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model_folder`` with weights."""
    policy = load_policy(run_config(model_folder, Path("unused"), "data.task=countdown").model, init_seed=0)
    folder = tmp_path_factory.mktemp("whole") / "model"
    save_model(policy, folder)
    return folder


@pytest.fixture
def work(whole_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of one case, and the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole_model, tmp_path / "model")
    rows()(tmp_path)
    return tmp_path


def arguments_for(given: list[str]) -> list[str]:
    """The case's arguments over those of a small run that would work; the case's come last."""
    command, *rest = given
    if command in ("export", "plan", "bench") or "--config" in rest or "--resume" in rest:
        return given
    settings = run_settings(Path("model"), Path("runs"), "model.random_init=false", "data.task=countdown")
    settings += ["data.path=rows.jsonl", "sft.max_steps=2", "sft.batch_size=4", "training.max_steps=1"]
    # `--model` adds its own override at the end.
    return [command, *[a for a in rest if "=" not in a], *settings, *[a for a in rest if "=" in a]]


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(("spoil", "given", "words"), CASES.values(), ids=CASES)
def test_bad_input(work: Path, monkeypatch, capsys, spoil: Spoil, given: list[str], words: list[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spoil(work)
    before = files_in(work)
    assert main(arguments_for(given)) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1, "one line, no traceback"
    for word in words:
        assert word in message
    assert files_in(work) == before, "nothing half-written"


# What the same arguments do when nothing is spoilt; without this the cases above could all fail for another reason.


def test_the_same_runs_work_unspoilt(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments_for(["train", "training.run_name=new"])) == 0
    assert main(["export", "runs/new", "out", "--dtype", "bfloat16"]) == 0
    assert load_file(work / "out" / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16
    assert main(arguments_for(["eval", "--model", "out", "--json", "scores.json"])) == 0
    scores = json.loads((work / "scores.json").read_text())
    assert scores["model"] == "out"
    assert 0 <= scores["sampled"]["success"]["mean"] <= 1
    assert main(arguments_for(["sft", "training.run_name=warm", "sft.output=warm", "sft.path=generate"])) == 0
    assert open_source("warm").spec == open_source("model").spec
    assert len(read_rows(work / "runs" / "warm" / "metrics.jsonl")) > 0
    assert capsys.readouterr().err == ""


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The document in the last line printed."""
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_two_models_are_compared_on_the_same_problems(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "--samples", "3", "--output", "a.jsonl", "--compare", "model"]
    assert main(arguments_for(arguments)) == 0
    first = last_json(capsys)
    assert first["sampled"]["num_samples"] == first["compare"]["sampled"]["num_samples"] == 3
    assert list(first["sampled"]["pass_at"]) == ["1", "2", "3"]
    assert len(read_rows(work / "a.jsonl")) == 6 * (3 + 1)
    # The same model, the same noise: the same answers, and nothing beyond chance.
    assert (work / "a.jsonl").read_bytes() == (work / "a-compared.jsonl").read_bytes()
    assert first["compare"]["difference"]["sampled"]["p_value"] == 1.0
    # From the files alone, the same numbers.
    assert main(["eval", "--answers", "a.jsonl", "--compare", "a-compared.jsonl", "--json", "again.json"]) == 0
    again = last_json(capsys)
    assert again["sampled"] == first["sampled"]
    assert again["compare"]["difference"] == first["compare"]["difference"]
    assert json.loads((work / "again.json").read_text()) == again
    # A model against a file, whose problems are looked at before anything is asked.
    assert main(arguments_for(["eval", "--compare", "a.jsonl", "evaluation.samples_per_problem=3"])) == 0
    assert last_json(capsys)["compare"]["difference"]["greedy"]["mean"] == 0.0
    assert main(arguments_for(["eval", "--compare", "a.jsonl", "evaluation.num_problems=2"])) == 2
    assert "not asked the same problems" in capsys.readouterr().err
    assert main(["eval", "--answers", "a.jsonl", "--compare", "model"]) == 2
    assert "no file of answers" in capsys.readouterr().err
    # Sides without a way of decoding in common.
    for name, decoding in (("g.jsonl", "greedy"), ("s.jsonl", "sampled")):
        kept = [line for line in (work / "a.jsonl").read_text().split("\n") if f'"decoding": "{decoding}"' in line]
        (work / name).write_text("\n".join(kept) + "\n")
    assert main(["eval", "--answers", "g.jsonl", "--compare", "s.jsonl"]) == 2
    assert "only greedy answers" in capsys.readouterr().err


@pytest.mark.parametrize("lines", [["12 3 = 15", "nonsense", "2 2 = 77"]])
def test_chat_judges_problems_and_goes_on_after_a_slip(work: Path, monkeypatch, capsys, lines: list[str]) -> None:
    answers = iter([*lines, ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert main(arguments_for(["chat", "--problem"])) == 0
    out = capsys.readouterr().out
    assert "reward" in out
    assert "'nonsense' is no problem" in out
    assert "77" in out


def test_chat_holds_a_conversation(work: Path, monkeypatch, capsys) -> None:
    answers = iter(["Hello", "And now?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert main(arguments_for(["chat"])) == 0
    assert capsys.readouterr().err == ""


def test_settings_may_stand_anywhere() -> None:
    given = ["train", "training.max_steps=1", "--config", "quickstart", "model.device=cpu"]
    assert parse(given).overrides == ["training.max_steps=1", "model.device=cpu"]
    assert parse(["bench", "W1", "--repeats", "2", "training.max_gen_len=8"]).overrides == ["training.max_gen_len=8"]
    with pytest.raises(SystemExit):
        parse(["export", "a", "b", "training.max_steps=1"])


TALKATIVE = """
import sys
from grpo_zero import cli
cli._plan = lambda options: [print("a line") for _ in range(100_000)] and 0
sys.exit(cli.main(["plan"]))
"""


def test_a_reader_that_leaves_is_no_error() -> None:
    """``grpo-zero ... | head -1``"""
    process = subprocess.Popen(
        [sys.executable, "-c", TALKATIVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "a line\n"
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()
