"""What `mas-bench report` makes of finished runs: tables, plots, and a folder to read them in.

>>> found = systems(["grpo=runs/grpo", "drmas=runs/drmas"])
>>> print(markdown(score_table(found)))
"""

from benchmarks.report.latex import latex
from benchmarks.report.render import markdown, terminal
from benchmarks.report.systems import System, systems
from benchmarks.report.table import ScoreTable, score_table

__all__ = ["ScoreTable", "System", "latex", "markdown", "score_table", "systems", "terminal"]
