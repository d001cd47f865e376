"""python -m mas_train.conformance: check a trainer's function, or this trainer, on golden cases."""

from __future__ import annotations

from typing import Annotated

import typer

from mas_envs.by_name import by_name
from mas_envs.console import exit_codes
from mas_train.conformance.cases import KINDS
from mas_train.conformance.check import TOLERANCE, check
from mas_train.conformance.report import Report
from retrievers.shell.console import epilog

PROGRAM = "python -m mas_train.conformance"
EXAMPLES = [
    PROGRAM,
    f"{PROGRAM} my_trainer:advantages --preset drmas",
    f"{PROGRAM} my_trainer:ppo_loss --kind loss --name ppo",
    f"{PROGRAM} my_trainer:loss --kind loss --name gspo --numpy",
]

app = typer.Typer(
    add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command(epilog=epilog(EXAMPLES))
def main(
    function: Annotated[str | None, typer.Argument(help="module:function; none: ours.")] = None,
    kind: Annotated[str, typer.Option(help=f"One of: {', '.join(KINDS)}.")] = "advantages",
    name: Annotated[
        str | None, typer.Option("--name", "--preset", help="The method that the function is.")
    ] = None,
    numpy: Annotated[bool, typer.Option("--numpy", help="A loss on arrays, not tensors.")] = False,
    tolerance: Annotated[float, typer.Option(min=0, help="Relative to 1 or more.")] = TOLERANCE,
) -> None:
    """Run FUNCTION against the golden cases of its kind; without it, all of this trainer's own."""
    with exit_codes("mas_train.conformance"):
        if function is None:
            from mas_train.conformance.ours import check_ours

            reports = check_ours(tolerance)
            for one, report in reports.items():
                typer.echo(_summary(one, report))
        else:
            framework = "numpy" if numpy else "torch"
            report = check(kind, by_name(function), name, tolerance=tolerance, framework=framework)
            typer.echo(report)
            reports = {kind: report}
    if not all(report.passed for report in reports.values()):
        raise typer.Exit(1)


def _summary(kind: str, report: Report) -> str:
    failed = report.failures()
    if failed.results:
        return f"{kind}\n{failed}"
    errors = [result.error for result in report if result.error is not None]
    return f"{kind:14}  {len(report.results):3} passed, largest error {max(errors):.0e}"


if __name__ == "__main__":
    app(prog_name=PROGRAM)
