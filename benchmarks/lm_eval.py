"""A run in the files of lm-evaluation-harness, for tools that read those.

    OUT/MODEL/results_DATE.json            results, configs, versions, n-samples, …
    OUT/MODEL/samples_SUITE_DATE.jsonl     a row per question, its k samples in `resps`

Keys and files are named as its `--output_path` with `--log_samples` names them; docs/benchmarks.md
says what stands in them. Only whole runs are exported.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.run_folder import Stored, write_json
from mas_envs.episodes.schema import Episode, ToolResult
from mas_envs.errors import UserError
from mas_envs.files import whole_file

FILTER = "none"  # lm-evaluation-harness names a metric "metric,filter"


class Exported(NamedTuple):
    """The two files."""

    results: Path
    samples: Path


def export(stored: Stored, out: Path) -> Exported:
    """Write both files. Raises `UserError` for a run without headline numbers."""
    summary = stored.summary()
    if summary["problem"]:
        raise UserError(f"{stored.folder}: no headline number to export: {summary['problem']}")
    name = _model(stored)
    folder = out / re.sub(r"[^\w.-]+", "__", name)
    folder.mkdir(parents=True, exist_ok=True)
    last = stored.run.sessions[-1] if stored.run.sessions else None
    finished = (last.finished or last.started) if last else 0.0
    date = datetime.fromtimestamp(finished, UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
    suite = stored.settings.suite["name"]
    files = Exported(folder / f"results_{date}.json", folder / f"samples_{suite}_{date}.jsonl")
    correct: dict[int, list[bool]] = {}
    digest = hashlib.sha256()
    with whole_file(files.samples) as temporary, temporary.open("wb") as lines:
        for row in sample_rows(stored):
            correct[row["doc_id"]] = row["correct"]
            digest.update((row["doc_hash"] + row["prompt_hash"] + row["target_hash"]).encode())
            lines.write(msgspec.json.encode(row) + b"\n")
    results = _results(stored, summary, correct)
    results |= {"task_hashes": {suite: digest.hexdigest()}, "date": finished}
    results |= {"model_source": "mas-gym", "model_name": name, "model_name_sanitized": folder.name}
    write_json(files.results, results)
    return files


def sample_rows(stored: Stored) -> Iterator[dict[str, Any]]:
    """A row per question, as soon as its k samples are read."""
    k = stored.settings.k
    open_: dict[str, list[Episode]] = {}
    for episode in stored.episodes():
        if episode.status != "done" or "fork" in episode.provenance:
            continue
        samples = open_.setdefault(episode.task, [])
        samples.append(_slim(episode))
        if len(samples) == k:
            yield _row(sorted(open_.pop(episode.task), key=lambda one: one.sample), k)


def _slim(episode: Episode) -> Episode:
    """The first turn (what was asked) and what was graded; the rest is not needed."""
    events = [*episode.turns[:1], episode.events[-1]]
    return msgspec.structs.replace(episode, events=events)


def _row(samples: list[Episode], k: int) -> dict[str, Any]:
    first = samples[0]
    asked = first.turns[0]
    prompt = json.dumps([{"role": m.role, "content": m.content} for m in asked.messages])
    doc = {**first.meta, "id": first.task, "question": first.question, "answer": first.gold}
    sampling = asked.sampling
    limits = {
        "do_sample": sampling.temperature > 0,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_gen_toks": sampling.max_tokens,
    }
    target = first.gold if isinstance(first.gold, str) else json.dumps(first.gold)
    correct = [bool(one.grade and one.grade.correct) for one in samples]
    answers = [(one.grade.answer if one.grade else None) or "" for one in samples]
    return {
        "doc_id": first.group,
        "doc": doc,
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": limits}},
        "resps": [[_graded_text(one) for one in samples]],
        "filtered_resps": [answers],
        "filter": FILTER,
        "metrics": [f"avg@{k}", f"pass@{k}"],
        "doc_hash": _hash(json.dumps(doc, sort_keys=True)),
        "prompt_hash": _hash(prompt),
        "target_hash": _hash(target),
        f"avg@{k}": sum(correct) / k,
        f"pass@{k}": float(any(correct)),
        "correct": correct,
    }


def _graded_text(episode: Episode) -> str:
    """The text that was graded; without a call of the grader the last thing said."""
    last = episode.events[-1]
    if isinstance(last, ToolResult):
        response = last.args.get("response")
        return response if isinstance(response, str) else json.dumps(last.args)
    return last.text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _model(stored: Stored) -> str:
    targets = {role: str(record["target"]) for role, record in stored.settings.policies.items()}
    if len(set(targets.values())) == 1:
        return next(iter(targets.values()))
    return ",".join(f"{role}={target}" for role, target in targets.items())


def _results(
    stored: Stored, summary: Mapping[str, Any], correct: Mapping[int, list[bool]]
) -> dict[str, Any]:
    settings = stored.settings
    suite, k = settings.suite["name"], settings.k
    by_metric = {
        f"avg@{k}": [sum(one) / k for one in correct.values()],
        f"pass@{k}": [float(any(one)) for one in correct.values()],
    }
    scores: dict[str, Any] = {"alias": suite}
    for metric, values in by_metric.items():
        scores[f"{metric},{FILTER}"] = statistics.fmean(values)
        scores[f"{metric}_stderr,{FILTER}"] = _standard_error(values)
    sampling = msgspec.to_builtins(settings.sampling)
    generation = {"do_sample": settings.sampling.temperature > 0, **sampling}
    config = {
        "task": suite,
        "output_type": "generate_until",
        "repeats": k,
        "num_fewshot": 0,
        "generation_kwargs": generation,
        "metric_list": [{"metric": metric, "higher_is_better": True} for metric in by_metric],
        "metadata": {"version": settings.suite["sha256"], "env": settings.env},
    }
    run = settings.suite["rows"]
    last = stored.run.sessions[-1] if stored.run.sessions else None
    return {
        "results": {suite: scores},
        "group_subtasks": {suite: []},
        "configs": {suite: config},
        "versions": {suite: settings.suite["sha256"]},
        "n-shot": {suite: 0},
        "higher_is_better": {suite: dict.fromkeys(by_metric, True)},
        "n-samples": {suite: {"original": run, "effective": len(correct)}},
        "config": {
            "model": "mas-gym",
            "model_args": _model(stored),
            "limit": len(correct) if len(correct) < run else None,
            "gen_kwargs": generation,
            "random_seed": settings.seed,
        },
        "git_hash": last.commit if last else None,
        "mas_gym": {"run": msgspec.to_builtins(stored.run), "summary": dict(summary)},
    }


def _standard_error(values: list[float]) -> float | str:
    """Of a mean over questions, each one value; "N/A" of a single one, as the harness has it."""
    if len(values) < 2:
        return "N/A"
    return statistics.stdev(values) / math.sqrt(len(values))
