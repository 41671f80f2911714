"""Tables and sentences about whole runs: killed ones, long ones, LoRA, the example task."""

from __future__ import annotations

import statistics

from table_parts import load, processor, wrapped


def kills_table() -> str:
    """For docs/runs.md."""
    result = load("kills")
    lines = ["| kill | moment | resumed from step | last step recorded | newest checkpoint | steps to do again |"]
    lines.append("|---|---|---|---|---|---|")
    for row in result["table"]:
        cells = ("kill", "moment", "resumed_from", "last_step", "latest_checkpoint", "steps_to_redo")
        lines.append("| " + " | ".join(str(row[cell]) for cell in cells) + " |")
    ends = "equal to" if result["same_curve"] and result["same_weights"] else "not equal to"
    lines += [
        "",
        wrapped(
            f"{result['kills']} kills with SIGKILL, {result['while_saving']} of them while a checkpoint was being written: "
            f"{result['checkpoints_lost']} checkpoints lost, {result['wrong_resumes']} wrong resumes, "
            f"{result['steps_redone']} steps done again. metrics.jsonl (but for time and memory), weights and optimizer states "
            f"at the end are {ends} those of the run that was not killed, to the last bit. `python benchmarks/kills.py --write`, "
            f"commit {result['commit']}."
        ),
    ]
    return "\n".join(lines)


def soak_sentence() -> str:
    """For docs/runs.md."""
    result = load("soak")
    memory, files = result["resident_gib"], result["open_files"]
    return wrapped(
        f"{result['answers']:,} answers of the quickstart ({len(result['peak_gib_by_step'])} steps, "
        f"{result['seconds'] / 60:.0f} minutes): resident memory {memory['after warm-up']:.3f} GiB after the warm-up, "
        f"{memory['at the end']:.3f} GiB at the end ({100 * memory['growth']:+.1f} %; medians of the highest value of 10 steps); "
        f"open files {files['after warm-up']} and {files['at the end']}. `{result['command']} --write`, {processor(result)}, "
        f"commit {result['commit']}."
    )


def near_miss_sentence() -> str:
    """For docs/tasks.md."""
    result = load("near_miss")
    points = ", ".join(f"{100 * row['success']:.1f} % at step {row['step']}" for row in result["curve"])
    return wrapped(
        f"[`examples/near_miss.py`](../examples/near_miss.py) on the packaged model: sampled success {points}. "
        f"`{result['command']} --write`, {processor(result)}, commit {result['commit']}."
    )


def lora_table() -> str:
    """For docs/lora.md."""
    result = load("lora")
    steps = [row["step"] for row in next(iter(result["variants"].values()))["runs"][0]["curve"]]
    lines = [
        f"| what is trained | sampled success, %, at steps {', '.join(map(str, steps))} | greedy after, % | seconds | step s "
        "| peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for name, variant in result["variants"].items():
        runs = variant["runs"]
        successes = [
            100 * statistics.mean(run["curve"][index]["success"] for run in runs) for index in range(len(steps))
        ]
        greedy = 100 * statistics.mean(run["after"]["greedy_success"] for run in runs)
        seconds, step_s, peak = (
            statistics.mean(run[key] for run in runs) for key in ("seconds", "step_s_median", "peak_gib")
        )
        shown = ", ".join(f"{success:.1f}" for success in successes)
        lines.append(f"| {name} | {shown} | {greedy:.1f} | {seconds:.0f} | {step_s:.1f} | {peak:.2f} |")
    first = next(iter(result["variants"].values()))["runs"]
    settings = "; ".join(
        f"{name}: `{' '.join(variant['settings'])}`"
        for name, variant in result["variants"].items()
        if variant["settings"]
    )
    lines += [
        "",
        wrapped(
            f"{result['steps']} steps of the quickstart, {len(first)} seed{'s' if len(first) > 1 else ''}. {settings}. "
            f"{processor(first[0])}, "
            f"{first[0]['machine']['threads']} threads; `{result['command']} --write`, commit {result['commit']}."
        ),
    ]
    return "\n".join(lines)


def dashboard_sentence() -> str:
    """For docs/dashboard.md."""
    result = load("dashboard")
    median = result["median"]
    paint_s, charts_s, answers_s = (median[f"{name}_ms"] / 1e3 for name in ("first_paint", "two_charts", "answers"))
    charts_kb, answers_kb = (median[f"fetched_bytes_{name}"] / 1e3 for name in ("charts", "answers"))
    frames = f"{median['frame_ms']:.0f} ms, 95 % of them at most {median['slow_frame_ms']:.0f}"
    return wrapped(
        f"A generated run of {result['steps']:,} steps x {result['answers_per_step']} answers, "
        f"{result['run_bytes'] / 1e9:.1f} GB, opened in a new profile: first paint after {paint_s:.2f} s, the two charts at "
        f"the top after {charts_s:.2f} s, the answers of step 7,777 after {answers_s:.2f} s. A frame while scrolling takes "
        f"{frames}. Fetched are {charts_kb:,.0f} kB for the charts and {answers_kb:,.0f} kB for the answers. Medians of "
        f"{result['repeats']}, headless Chromium {result['chromium'].split('.')[0]}, {processor(result)}, "
        f"{result['machine']['threads']} threads; `{result['command']}`, commit {result['commit']}."
    )
