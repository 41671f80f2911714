"""The command line. Every command's work is imported when the command runs, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from grpo_zero.allocator import keep_freed_memory
from grpo_zero.config import Config, describe_options, load_config
from grpo_zero.errors import UserError
from grpo_zero.observe.terminal import one_line, show
from grpo_zero.out_of_memory import is_out_of_memory
from grpo_zero.plan.models import local_spec
from grpo_zero.runs import CONFIG_FILE, find_run, model_of, run_config

CHECK_TIMEOUT_S = 10.0
"""Seconds an answer that ``check-task`` waits where data.verify_timeout_s is null: it has to come back from any verifier."""
SETTING = re.compile(r"\w+\.\w+=")
OWN_WORDING = [f"data.{name}=null" for name in ("prompt", "system_prompt", "response_start")]
"""Settings of a config that were meant for another task."""
DEFAULT_CONFIG = "quickstart"
AUTO = "auto"
"""Of ``--resume``: look for the run."""
FULL_DISK = "The disk is full ({}): make room, then go on with --resume; the last checkpoint is whole."
UNUSABLE = "{} cannot be read or written ({}): check the path and its permissions, or give another."
OUT_OF_MEMORY = (
    "Memory ran out ({}): lower training.num_slots (sampling) or training.micro_batch_tokens (update), or set "
    "training.memory_efficient_adamw=true or training.moment_bits=8; `grpo-zero plan` shows where memory goes, and a run with a "
    "checkpoint goes on with --resume."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0; 1 where ``verify`` finds a difference; 2 for bad input; 130 after Ctrl-C and 143 after SIGTERM,
    with the run saved.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    keep_freed_memory()
    try:
        return options.run(options) or 0
    except UserError as error:
        show(f"error: {one_line(str(error))}", stream=sys.stderr)
        return 2
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = OUT_OF_MEMORY.format(str(error).partition(chr(10))[0] or "no more was left")
        show(f"error: {one_line(message)}", stream=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `grpo-zero ... | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains as it flushes at its end
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            if error.filename is None:
                raise
            show(f"error: {one_line(UNUSABLE.format(str(error.filename)[:200], error.strerror))}", stream=sys.stderr)
            return 2
        show(f"error: {FULL_DISK.format(error.filename or 'where the run is written')}", stream=sys.stderr)
        return 2


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command's options. Settings may stand anywhere: argparse wants all words without a dash in one place."""
    settings = [word for word in arguments if SETTING.match(word)]
    options = build_parser().parse_args([word for word in arguments if not SETTING.match(word)])
    if settings and not hasattr(options, "overrides"):
        build_parser().error(f"unrecognized arguments: {' '.join(settings)}")
    if settings:
        options.overrides = [*options.overrides, *settings]
    if getattr(options, "task", None):
        options.overrides = [f"data.task={options.task}", *OWN_WORDING, *options.overrides]
    return options


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="grpo-zero",
        description="A from-scratch GRPO trainer for one GPU or a laptop.",
        epilog="`grpo-zero train` alone trains a tiny packaged model on a CPU in minutes.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    train = _command(commands, "train", "Train with GRPO.", _train)
    sft = _command(commands, "sft", "Warm start: supervised training on prompt and response.", _sft)
    for resumable in (train, sft):
        resumable.add_argument(
            "--resume",
            metavar="RUN",
            help="go on with this run folder from its last checkpoint; auto: with the latest run of this config, or a new one",
        )
    evaluate = _command(commands, "eval", "Score a model on the held-out problems; compare two.", _eval)
    for tasked in (train, evaluate):
        tasked.add_argument("--task", metavar="FILE", help="a task of your own, my_task.py or my_task.py:Class")
    evaluate.add_argument("--model", metavar="PATH", help="model or run folder; a run brings its config along")
    evaluate.add_argument("--samples", metavar="N", type=int, help="sampled answers a problem: pass@k up to N")
    evaluate.add_argument("--output", metavar="FILE", type=Path, help="write every answer to this new .jsonl file")
    evaluate.add_argument(
        "--answers", metavar="FILE", type=Path, help="score the answers in a file of --output instead"
    )
    evaluate.add_argument(
        "--compare", metavar="OTHER", help="on the same problems: a model, a run folder, or a file of --output"
    )
    evaluate.add_argument("--json", metavar="FILE", type=Path, help="also write the scores to this file")
    chat = _command(commands, "chat", "Talk to a model.", _chat)
    chat.add_argument("--model", metavar="PATH", help="model or run folder; a run brings its config along")
    chat.add_argument("--problem", action="store_true", help="each line is numbers and a target: 3 4 5 = 35")
    export = _command(commands, "export", "Write a model as a Hugging Face folder.", _export)
    export.add_argument("source", help="model folder, checkpoint, run folder, .gguf file, hub id or embedded:NAME")
    export.add_argument("target", type=Path, help="folder to write")
    export.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: as in the source")
    check = _command(commands, "check-task", "Say what is wrong with a task, before a model is asked.", _check_task)
    check.add_argument(
        "--task", metavar="FILE", help="my_task.py, my_task.py:Class, or a bundled one: gsm8k, reasoning_gym:chain_sum"
    )
    verify = _command(commands, "verify", "Do steps of a run again and compare them with what it recorded.", _verify)
    verify.add_argument("run_folder", metavar="RUN", type=Path, help="the run folder")
    verify.add_argument("--steps", metavar="N", type=int, help="at most so many (default: up to the last checkpoint)")
    doctor = _command(commands, "doctor", "Say what is going wrong in a run, and what to try.", _doctor)
    report = _command(commands, "report", "Write a run as one HTML file: curves, findings, answers, settings.", _report)
    for reading in (doctor, report):
        reading.add_argument("run_folder", metavar="RUN", type=Path, help="the run folder")
    report.add_argument(
        "--output", metavar="FILE", type=Path, help="default: report.html in the run folder; plots go beside it as .png"
    )
    plan = _command(commands, "plan", "Show where memory would go, and choose the settings that make a run fit.", _plan)
    plan.add_argument("--model", metavar="PATH", help="model folder or its config.json, .gguf file or embedded:NAME")
    plan.add_argument(
        "--memory", metavar="GIB", type=float, help="GiB of the device (default: training.memory, or what is free)"
    )
    plan.add_argument("--device", choices=("cpu", "cuda"), help="default: the config's")
    dashboard = _command(commands, "dashboard", "Show runs in the browser: charts and answers, live.", _dashboard)
    dashboard.add_argument(
        "paths", nargs="*", type=Path, metavar="FOLDER", help="run folders, or folders of them (default: runs)"
    )
    dashboard.add_argument("--host", default="127.0.0.1", help="address to listen at (default 127.0.0.1: this machine)")
    dashboard.add_argument("--port", type=int, default=8420, help="port to listen at (default 8420; 0: any free one)")
    bench = _command(commands, "bench", "Time one GRPO step: sampling and update, with random rewards.", _bench)
    bench.add_argument("workload", help="W1, W2, quickstart, GPU-0.5B or GPU-3B: see docs/benchmarks.md")
    bench.add_argument("--model", metavar="PATH", help="model files of the workload, where it needs some")
    bench.add_argument("--repeats", type=int, default=3, help="steps to time (default 3); the median is reported")
    bench.add_argument("--json", metavar="FILE", type=Path, help="also write the result to this file")
    bench.add_argument("--compare", metavar="FILE", type=Path, help="an earlier result to compare with")
    bench.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings over the workload's")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int | None],
) -> argparse.ArgumentParser:
    has_config = name not in ("export", "bench", "verify", "doctor", "report", "dashboard")
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"settings, each as section.key=value:\n\n{describe_options()}" if has_config else None,
    )
    parser.set_defaults(run=run)
    if has_config:
        default = "the settings' own defaults" if name == "plan" else DEFAULT_CONFIG
        parser.add_argument(
            "--config", metavar="FILE", help=f"YAML file or name of a packaged config (default: {default})"
        )
        parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings over those of the file")
    return parser


def _config(options: argparse.Namespace) -> Config:
    """The config of the command: a resumed or named run's own, else ``--config``'s, with the overrides over it."""
    resume: str | None = getattr(options, "resume", None)
    model: str | None = getattr(options, "model", None)
    if resume not in (None, AUTO):
        if options.config:
            raise UserError(f"--resume {resume} takes the config from that run folder: leave --config out.")
        return run_config(Path(resume), options.overrides)
    overrides = list(options.overrides)
    if model is None:
        return load_config(options.config or DEFAULT_CONFIG, overrides)
    overrides.append(f"model.pretrained_model_path={model_of(model)}")
    if options.config is None and (Path(model) / CONFIG_FILE).is_file():
        return run_config(Path(model), [*overrides, "model.random_init=false"])
    return load_config(options.config or DEFAULT_CONFIG, overrides)


def _run_to_resume(options: argparse.Namespace, config: Config, command: str) -> Path | None:
    if options.resume == AUTO:
        return find_run(config, command)
    return Path(options.resume) if options.resume else None


def _train(options: argparse.Namespace) -> int:
    config = _config(options)
    resume = _run_to_resume(options, config, "train")
    from grpo_zero.train.run import run_to_end

    return run_to_end(config, resume)[1]


def _sft(options: argparse.Namespace) -> int:
    config = _config(options)
    resume = _run_to_resume(options, config, "sft")
    from grpo_zero.train.sft import warm_start_to_end

    return warm_start_to_end(config, resume)[1]


def _eval(options: argparse.Namespace) -> None:
    _check_json_folder(options.json)
    if options.samples is not None and options.samples < 1:
        raise UserError(f"--samples is {options.samples}, but each problem needs at least one: give 1 or more.")
    if options.answers is not None:
        for name in ("model", "config", "task", "samples", "output", "overrides"):
            if getattr(options, name):
                given = f"--{name}" if name != "overrides" else " ".join(options.overrides)
                raise UserError(f"--answers takes finished answers, on which {given} has no effect: leave it out.")
        from grpo_zero.commands.evaluate import score_answers

        score_answers(options.answers, options.json, options.compare)
        return
    if options.samples is not None:
        options.overrides = [*options.overrides, f"evaluation.samples_per_problem={options.samples}"]
    config = _config(options)
    from grpo_zero.commands.evaluate import evaluate_model

    evaluate_model(config, options.json, options.output, options.compare)


def _chat(options: argparse.Namespace) -> None:
    config = _config(options)
    from grpo_zero.commands.chat import chat

    chat(config, problems=options.problem)


def _export(options: argparse.Namespace) -> None:
    from grpo_zero.commands.export import export

    export(options.source, options.target, options.dtype)


def _check_task(options: argparse.Namespace) -> None:
    config = load_config(options.config, options.overrides)
    from grpo_zero.commands.check_task import report
    from grpo_zero.train.problems import load_rows, make_task

    if config.data.verify_timeout_s is None:
        config = replace(config, data=replace(config.data, verify_timeout_s=CHECK_TIMEOUT_S))
    task = make_task(config)
    report(task, load_rows(config, task)[0])


def _verify(options: argparse.Namespace) -> int:
    if options.steps is not None and options.steps < 1:
        raise UserError(f"--steps is {options.steps}, but at least one step has to be done again: give 1 or more.")
    config = run_config(options.run_folder)
    from grpo_zero.commands.verify import verify

    return 0 if verify(config, options.run_folder, options.steps) else 1


def _doctor(options: argparse.Namespace) -> None:
    from grpo_zero.commands.doctor import show_findings

    show_findings(options.run_folder)


def _report(options: argparse.Namespace) -> None:
    from grpo_zero.report.write import write_report

    print(f"report: {write_report(options.run_folder, options.output)}")


def _plan(options: argparse.Namespace) -> None:
    config = load_config(options.config, options.overrides)
    model = options.model or config.model.pretrained_model_path
    spec = local_spec(model)
    if spec is None:
        from grpo_zero.checkpoint.source import open_source

        spec = open_source(model, weights=False).spec
    from grpo_zero.commands.plan import show_plan

    show_plan(config, spec, options.device, options.memory)


def _dashboard(options: argparse.Namespace) -> None:
    from grpo_zero.commands.dashboard import serve

    serve(options.paths or [Path("runs")], options.host, options.port)


def _bench(options: argparse.Namespace) -> None:
    _check_json_folder(options.json)
    if options.repeats < 1:
        raise UserError(f"--repeats is {options.repeats}, but at least one step has to be timed: give 1 or more.")
    from grpo_zero.commands.bench import bench

    bench(options.workload, options.model, options.repeats, options.overrides, options.json, options.compare)


def _check_json_folder(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--json is {path}, but there is no folder {path.parent}: make it first.")


if __name__ == "__main__":
    sys.exit(main())
