"""`mas-leaderboard`: hand in a run, recompute one, serve the board. One file per command."""

from leaderboard.cli import backup, export, import_, pack, serve, submit, token, verify
from mas_envs.console import command_line, epilog

app = command_line(
    "Hand in a run, and have every number of a submission recomputed.",
    [
        "mas-leaderboard pack runs/aime24 -o sub.zip --system pair --team 'our lab'",
        "mas-leaderboard verify sub.zip --data suites",
        "mas-leaderboard submit sub.zip --to https://board.example.org --wait",
        "mas-leaderboard serve --folder board --data suites",
        "mas-leaderboard import submissions --folder board --data suites",
        "mas-leaderboard export site --folder board",
    ],
)
for name, module, function in (
    ("pack", pack, pack.pack),
    ("verify", verify, verify.verify),
    ("submit", submit, submit.submit),
    ("serve", serve, serve.serve),
    ("import", import_, import_.import_folder),
    ("export", export, export.export),
    ("backup", backup, backup.backup),
    ("restore", backup, backup.restore),
):
    app.command(name, epilog=epilog(module.EXAMPLES))(function)
app.add_typer(token.app, name="token")
