"""Writes the figures in README.md and docs/ from the JSON files in benchmarks/results. A test holds pages and files together.

python benchmarks/tables.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from check_tables import coverage_table, mutants_sentence
from run_tables import dashboard_sentence, kills_table, lora_table, near_miss_sentence, soak_sentence
from table_parts import interval, load, mean, processor, wrapped

ROOT = Path(__file__).parents[1]


def main() -> None:
    for page, sections in SECTIONS.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), sections), encoding="utf-8")


def filled(text: str, sections: dict[str, Any]) -> str:
    """The page with every section between ``<!-- name -->`` and ``<!-- /name -->`` made anew."""
    for name, make in sections.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text = re.sub(pattern, lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text, flags=re.DOTALL)
    return text


def quickstart_sentence() -> str:
    """For the README."""
    result = load("quickstart")
    runs = result["runs"]
    before, after = (mean(run[when]["success"] for run in runs) for when in ("before", "after"))
    greedy_before, greedy_after = (mean(run[when]["greedy_success"] for run in runs) for when in ("before", "after"))
    low, high = min(result["seconds"]), max(result["seconds"])
    return (
        f"The first one takes {low / 60:.0f} to {high / 60:.0f} minutes on 2 CPU cores ({processor(runs[0])}) and raises "
        f"sampled success on held-out problems from {before:.0f} % to\n{after:.0f} %, greedy success from "
        f"{greedy_before:.0f} % to {greedy_after:.0f} % (means of {len(runs)} seeds; [details](docs/quickstart.md))."
    )


def quickstart_table() -> str:
    """For docs/quickstart.md."""
    result = load("quickstart")
    lines = [
        "| seed | sampled before, % | after, % | greedy before, % | after, % | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for run in result["runs"]:
        before, after = run["before"], run["after"]
        lines.append(
            f"| {run['random_seed']} | {100 * before['success']:.1f} | {100 * after['success']:.1f} "
            f"| {100 * before['greedy_success']:.1f} | {100 * after['greedy_success']:.1f} | {run['seconds']:.0f} |"
        )
    run = result["runs"][0]
    width = 50 * (run["after"]["success_high"] - run["after"]["success_low"])
    lines.append("")
    lines.append(
        "Sampled success: mean over 4 answers each to 512 held-out problems, temperature 1; 95 % intervals of about "
        f"± {width:.1f} points.\nMeasured on {processor(run)}, {run['machine']['threads']} threads, "
        f"torch {run['machine']['torch']}, float32; `{result['command']}`."
    )
    return "\n".join(lines)


def bench_table() -> str:
    """For docs/benchmarks.md."""
    results = load("steps")
    lines = [
        "| case | sample s | update s | step s | tokens/s | % of limit: prefill, decode, update, optimizer | peak GiB "
        "| planned |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        cells = " | ".join(f"{result[key]['median']:.1f}" for key in ("sample_s", "update_s", "step_s"))
        speed = result["sampled_tokens"]["median"] / result["step_s"]["median"]
        phases = ("prefill", "decode", "update", "optimizer")
        shares = ", ".join(f"{100 * result['phases'][phase]['share_of_floor']:.0f}" for phase in phases)
        lines.append(
            f"| {name} | {cells} | {speed:.0f} | {shares} | {result['peak_gib']:.2f} | {result['planned_gib']:.2f} |"
        )
    first = next(iter(results.values()))
    limits = [(result["product_gflops"], result["read_gb_s"]) for result in results.values()]
    (low_product, low_read), (high_product, high_read) = (map(pick, zip(*limits, strict=True)) for pick in (min, max))
    lines.append("")
    lines.append(
        wrapped(
            f"Medians of {_count(results)} after a warm-up step; tokens/s: completion tokens over the whole step; "
            f"{processor(first)}, {first['machine']['threads']} threads, torch {first['machine']['torch']}, float32; commit "
            f"{', '.join(sorted({result['commit'] for result in results.values()}))}. Limits, measured at the start of each run: "
            f"products {low_product:.0f} to {high_product:.0f} GFLOP/s, reading {low_read:.0f} to {high_read:.0f} GB/s. "
            + " ".join(
                f"{name}: `{_own_settings(name, results)}`." for name in results if name.endswith(NAMED_SETTINGS)
            )
        )
    )
    return "\n".join(lines)


NAMED_SETTINGS = ("small", "given back", "not compiled")
"""Ends of the names of cases whose settings the name does not tell."""


def _own_settings(name: str, results: dict[str, Any]) -> str:
    """What a case sets beyond its workload."""
    base = results[name.split(",")[0]]["settings"]
    return " ".join(setting for setting in results[name]["settings"] if setting not in base)


def _count(results: dict[str, Any]) -> str:
    counts = sorted({result["repeats"] for result in results.values()})
    return f"{counts[0]} step{'s' * (counts[0] > 1)}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} steps"


def _turns(result: dict[str, Any]) -> str:
    """How often each, and how many steps then, by case."""
    return "; ".join(
        f"{name}: {workload['rounds']} each, {workload['repeats']} timed steps in a turn"
        for name, workload in result["workloads"].items()
    )


def peers_table() -> str:
    """For docs/benchmarks.md."""
    result = load("peers")
    lines = [
        "| workload | trainer | sample s | update s | step s | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for name, workload in result["workloads"].items():
        for trainer in ("trl", "grpo_zero"):
            runs = workload[trainer]
            title = runs[0].get("trainer", "GRPO-Zero")
            cells = " | ".join(_seconds_range(runs, key) for key in ("sample_s", "update_s", "step_s"))
            lines.append(f"| {name} | {title} | {cells} | {max(run['peak_gib'] for run in runs):.1f} |")
        ratios = workload["ratios"]
        cells = " | ".join(f"**{ratios[key]:.2f}**" for key in ("sample_s", "update_s", "step_s", "peak_gib"))
        lines.append(f"| {name} | ratio | {cells} |")
    first = next(iter(result["workloads"].values()))["grpo_zero"][0]
    commits = ", ".join(sorted({workload["commit"] for workload in result["workloads"].values()}))
    lines.append("")
    lines.append(
        wrapped(
            f"The two take turns ({_turns(result)}), after a step that is not timed; "
            "smallest to largest seconds of all, ratios of the medians. TRL without gradient checkpointing, with the micro-batch "
            "that is "
            f"fastest for it ({_micro_batches(result)} completions), no KL. {processor(first)}, "
            f"{first['machine']['threads']} threads, torch {first['machine']['torch']}, float32; `{result['command']}`, "
            f"commit {commits}."
        )
    )
    return "\n".join(lines)


def _seconds_range(runs: list[dict[str, Any]], key: str) -> str:
    low = min(run[key]["min"] if isinstance(run[key], dict) else min(run[key]) for run in runs)
    high = max(run[key]["max"] if isinstance(run[key], dict) else max(run[key]) for run in runs)
    return f"{low:.1f} to {high:.1f}"


def _micro_batches(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {workload['trl'][0]['micro_batch']}" for name, workload in result["workloads"].items())


def same_curve_table() -> str:
    """For docs/benchmarks.md."""
    result = load("same_curve")
    lines = ["| path | steps with equal answers | loss | gradient norm | entropy |", "|---|---|---|---|---|"]
    for name, found in result["variants"].items():
        apart = found["difference"]
        cells = " | ".join(
            "equal" if not apart[key] else f"{apart[key]:.0e}" for key in ("loss", "grad_norm", "entropy")
        )
        lines.append(f"| {name} | {found['equal_steps']} of {result['steps']} | {cells} |")
    lines.append("")
    lines.append(
        wrapped(
            f"The quickstart's first {result['steps']} steps with `{' '.join(result['settings'])}`, against the same with "
            "each path switched on; largest relative difference over the steps with equal answers (of the loss, which is "
            f"about 0: absolute). {processor(result)}, torch {result['machine']['torch']}, float32; `{result['command']}`, "
            f"commit {result['commit']}."
        )
    )
    return "\n".join(lines)


def verifiers_sentence() -> str:
    """For docs/tasks.md."""
    result = load("verifiers")
    usual = ", ".join(
        f"{name} {found['median_us']:.0f} microseconds for an answer of {found['mean_characters']} characters"
        for name, found in result["tasks"].items()
    )
    slowest = ", ".join(f"{name} {found['slowest_ms']:.1f} ms" for name, found in result["tasks"].items())
    count = next(iter(result["tasks"].values()))["texts"]
    return wrapped(
        f"Verifying takes: {usual} (medians). {count:,} hostile texts of up to 20,000 characters through each raised nothing; "
        f"the slowest took: {slowest}. {processor(result)}; `{result['command']}`, commit {result['commit']}."
    )


def smollm2_sentence() -> str:
    """For docs/benchmarks.md."""
    result = load("smollm2")
    before, after = result["before"], result["after"]
    sampled, greedy = (
        f"{interval(before, name)} after the warm start, {interval(after, name)} after GRPO"
        for name in ("success", "greedy_success")
    )
    return (
        f"SmolLM2-135M-Instruct (dequantised Q4_1) on two-number Countdown, {result['steps']} GRPO steps: sampled success\n"
        f"{sampled};\ngreedy {greedy}. The warm start took {result['warm_start_s'] / 60:.0f} minutes, GRPO "
        f"{result['grpo_s'] / 60:.0f} minutes, both with loading, on {processor(result)}."
    )


def presets_table() -> str:
    """For docs/algorithms.md."""
    result = load("presets")
    seeds = [run["random_seed"] for run in next(iter(result["presets"].values()))]
    lines = [
        "| preset | sampled success after, % | greedy after, % | mean length | truncated, % | entropy | clipped, % "
        "| processor seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    befores = []
    for preset, runs in result["presets"].items():
        befores += [run["before"]["success"] for run in runs]

        def cells(key: str, digits: int = 1, runs: Any = runs) -> str:
            return " / ".join(f"{100 * run['after'][key]:.{digits}f}" for run in runs)

        lengths = " / ".join(f"{run['after']['length']:.0f}" for run in runs)
        last = [run["last_10_steps"] for run in runs]
        entropy = " / ".join(f"{facts['entropy']:.2f}" for facts in last)
        clipped = " / ".join(
            f"{100 * (facts.get('clip_fraction_low', 0) + facts.get('clip_fraction_high', 0)):.2f}" for facts in last
        )
        seconds = " / ".join(f"{run['cpu_seconds']:.0f}" for run in runs)
        lines.append(
            f"| `{preset}` | {cells('success')} | {cells('greedy_success')} | {lengths} | {cells('truncated_share')} "
            f"| {entropy} | {clipped} | {seconds} |"
        )
    run = next(iter(result["presets"].values()))[0]
    width = 50 * (run["after"]["success_high"] - run["after"]["success_low"])
    lines.append("")
    lines.append(
        wrapped(
            f"Seeds {' / '.join(map(str, seeds))}; the quickstart's {run['steps']} steps with "
            f"`{' '.join(result['settings'])}`: half the questions and half the learning rate twice a step, since with "
            "one update `cispo` and `gspo` would repeat other rows; the last row is the quickstart's own setting. All start at "
            f"{100 * min(befores):.1f} to {100 * max(befores):.1f} % sampled success; 95 % intervals are "
            f"± {width:.1f} points. Length and truncated share: of the sampled answers to the held-out problems. "
            "Entropy (nats a token) and clipped tokens: of training, last 10 steps. Processor seconds of a whole run, "
            f"four evaluations included, one thread, {processor(run)}, torch {run['machine']['torch']}, float32; "
            f"`{result['command']}`, commit {result['commit']}."
        )
    )
    return "\n".join(lines)


def bf16_sentence() -> str:
    """For docs/algorithms.md."""
    result = load("bf16_updates")
    return wrapped(
        f"After {result['updates']} updates of `{result['model']}` at learning rate {result['learning_rate']:.0e}, "
        f"{100 * result['moved_share_bf16_masters']:.2f} % of the float32 masters behind the bf16 weights have moved, and "
        f"{100 * result['moved_share_bf16_weights']:.1f} % of the bf16 weights themselves. The way they went has cosine "
        f"{result['cosine_to_float32']:.4f} with the float32 run's and {result['length_relative_to_float32']:.4f} of its "
        f"length. Without masters {100 * result['moved_share_bf16_without_masters']:.1f} % of the weights move, with cosine "
        f"{result['cosine_to_float32_without_masters']:.2f}. {processor(result)}, torch {result['machine']['torch']}; "
        f"`{result['command']}`, commit {result['commit']}."
    )


TOY_ROWS = {
    "success": "success",
    "reward": "reward",
    "entropy": "entropy, nats",
    "grad_norm": "gradient norm",
    "zero_variance_share": "zero-variance share",
    "length_right": "length, right",
    "length_wrong": "length, wrong",
    "truncated_share": "truncated share",
}


def toy_table() -> str:
    """For docs/algorithms.md."""
    result = load("toy")
    runs = result["runs"]
    columns = [name for name in runs if name == "working" or name.startswith("no baseline") or name.endswith("broken")]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for key, label in TOY_ROWS.items():
        cells = [f"{runs[name]['curves'][key][0]:.3g} → {runs[name]['curves'][key][-1]:.3g}" for name in columns]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines.append("")
    seconds = max(run["seconds_a_run"] for run in runs.values())
    lines.append(
        wrapped(
            f"First → last {result['window']} of 200 steps, means over seeds {', '.join(map(str, result['seeds']))}; a run takes "
            f"at most {seconds:.1f} s on {processor(result)}. Curves in `benchmarks/results/toy.json`, made by "
            f'`{result["command"]}`, commit {result["commit"]}. "working" is the healthy side of the length bias and of the '
            "hackable reward."
        )
    )
    return "\n".join(lines)


SECTIONS = {
    "README.md": {"quickstart": quickstart_sentence},
    "docs/quickstart.md": {"quickstart": quickstart_table},
    "docs/algorithms.md": {"presets": presets_table, "bf16": bf16_sentence, "toy": toy_table},
    "docs/tasks.md": {"near miss": near_miss_sentence, "verifiers": verifiers_sentence},
    "docs/lora.md": {"lora": lora_table},
    "docs/dashboard.md": {"dashboard": dashboard_sentence},
    "docs/runs.md": {"kills": kills_table, "soak": soak_sentence},
    "docs/benchmarks.md": {
        "bench": bench_table,
        "peers": peers_table,
        "same curve": same_curve_table,
        "smollm2": smollm2_sentence,
        "coverage": coverage_table,
        "mutants": mutants_sentence,
    },
}

if __name__ == "__main__":
    main()
