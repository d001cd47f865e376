"""`mas-bench`: measure a policy on a benchmark suite. One file per command."""

from benchmarks.cli import (
    compare,
    contamination,
    credit,
    diagnose,
    export,
    fetch,
    grade,
    list_suites,
    report,
    rescore,
    run,
)
from mas_envs.console import command_line, epilog

app = command_line(
    "Measure a policy on a benchmark suite: k samples per question, avg@k and pass@k.",
    [
        "mas-bench run arith --policy scripted:adder --k 4 --out runs/try",
        "mas-bench run arith --policy runs/demo --out runs/as-trained",
        "mas-bench fetch aime24 math500 --to suites",
        "mas-bench run aime24 --data suites --out runs/aime24 \\",
        "    --policy http://localhost:8000/v1#Qwen3-4B",
        "mas-bench run math500 --data suites --out runs/math500 \\",
        "    --policy solver=models/solver,verifier=models/verifier",
        "mas-bench report runs/aime24",
        "mas-bench report before=runs/before after=runs/after --out report",
        "mas-bench compare runs/before runs/after",
        "mas-bench rescore runs/aime24 --policy strict",
        "mas-bench diagnose runs/try",
        "mas-bench credit runs/try --agent verifier --replace scripted:approve",
        "mas-bench contamination train.jsonl --data suites",
        "mas-bench grade answers.jsonl --policy strict",
    ],
)
EXAMPLES = {
    "list": ["mas-bench list"],
    "fetch": [
        "mas-bench fetch aime24 math500 --to suites",
        "mas-bench fetch drmas_math drmas_search --to suites    # to train on",
    ],
    "contamination": [
        "mas-bench contamination train.jsonl --data suites",
        "mas-bench contamination train.parquet --suite aime24 --data aime24=my.jsonl",
    ],
    "report": [
        "mas-bench report runs/aime24",
        "mas-bench report before=runs/before after=runs/after --out report",
        "mas-bench report runs/a runs/b --latex table.tex --prices prices.yaml",
    ],
    "compare": [
        "mas-bench compare runs/before runs/after",
        "mas-bench compare runs/before runs/after --top 30 --json compared.json",
    ],
    "diagnose": ["mas-bench diagnose runs/try", "mas-bench diagnose runs/try --json team.json"],
    "credit": [
        "mas-bench credit runs/try --agent verifier --replace scripted:approve",
        "mas-bench credit runs/try --agent solver --replace resample --draws 4",
    ],
    "rescore": [
        "mas-bench rescore runs/aime24 --policy strict",
        'mas-bench rescore runs/aime24 --policy \'{"units": "required"}\' --out runs/units',
    ],
    "export": ["mas-bench export runs/aime24 --format lm-eval --out exported"],
}


def examples(command: str) -> str | None:
    """What stands below a command's help."""
    return epilog(EXAMPLES[command])


app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("list", epilog=examples("list"))(list_suites.list_suites)
app.command("fetch", epilog=examples("fetch"))(fetch.fetch)
app.command("contamination", epilog=examples("contamination"))(contamination.check_contamination)
app.command("report", epilog=examples("report"))(report.report)
app.command("compare", epilog=examples("compare"))(compare.compare)
app.command("diagnose", epilog=examples("diagnose"))(diagnose.diagnose)
app.command("credit", epilog=examples("credit"))(credit.credit)
app.command("grade", epilog=grade.EXAMPLES)(grade.grade)
app.command("rescore", epilog=examples("rescore"))(rescore.rescore_run)
app.command("export", epilog=examples("export"))(export.export)
