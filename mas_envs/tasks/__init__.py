"""Tasks: questions with their answers.

    >>> tasks = load_tasks("arith", split="dev")
    >>> tasks[0].question, tasks.by_id(tasks[0].id) is tasks[0]

Sources: `arith` and `tinyworld` (embedded generators), a JSONL file with `question` and `answer`,
or a Parquet file in the schema of the Dr. MAS / Search-R1 recipes.
"""

from mas_envs.tasks.sources import SOURCES, load_tasks
from mas_envs.tasks.task_set import Answer, Row, Task, TaskSet, content_hash

__all__ = ["SOURCES", "Answer", "Row", "Task", "TaskSet", "content_hash", "load_tasks"]
