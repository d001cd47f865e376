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
from mas_envs.console import command_line

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
app.command("run")(run.run)
app.command("list")(list_suites.list_suites)
app.command("fetch")(fetch.fetch)
app.command("contamination")(contamination.check_contamination)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("diagnose")(diagnose.diagnose)
app.command("credit")(credit.credit)
app.command("grade", epilog=grade.EXAMPLES)(grade.grade)
app.command("rescore")(rescore.rescore_run)
app.command("export")(export.export)
