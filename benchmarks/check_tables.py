"""What docs/benchmarks.md says of the tests: what they run, and whether they can fail."""

from __future__ import annotations

from table_parts import load, wrapped


def coverage_table() -> str:
    """For docs/benchmarks.md."""
    result = load("coverage")
    lines = ["| part | lines run by tests, % | branches, % | lines |", "|---|---|---|---|"]
    for name, found in result["parts"].items():
        lines.append(f"| {name} | {found['lines']:.1f} | {found['branches']:.1f} | {found['num_lines']} |")
    lines.append("")
    lines.append(wrapped(f"coverage {result['coverage']}; `{result['command']}`, commit {result['commit']}."))
    return "\n".join(lines)


def mutants_sentence() -> str:
    """For docs/benchmarks.md."""
    result = load("mutants")
    modules = result["modules"].values()
    total, same = (sum(found[key] for found in modules) for key in ("mutants", "equivalent"))
    survivors = sum(len(found["survivors"]) for found in modules)
    return wrapped(
        f"{total} small changes of the parser, the tags and Countdown's verdict: {same} mean the same, each with its reason in "
        f"the file, and of the others {survivors or 'none'} survive{'s' * (survivors == 1)} the tests. `{result['command']}`, "
        f"commit {result['commit']}."
    )
