"""Episodes to show, and a page read the way a browser reads it."""

import asyncio
import json
from html.parser import HTMLParser
from importlib import resources

import mas_envs
from mas_envs.episodes.schema import Episode, Grade, Message, Turn
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.tasks import load_tasks

HOSTILE = (
    "</script><img src=x onerror=\"document.title='pwned'\"><!--<script>--> &lt;b&gt; "
    "nul:\0 rtl:\u202etxt.exe\u202c line:\u2028para:\u2029 {{x}} ${title} $title"
)
ASSETS = resources.files("mas_envs.episodes.viewer")


class Elements(HTMLParser):
    """Every element with its attributes, and the text inside script and style elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.raw.append((tag, ""))

    def handle_data(self, content):
        if self.elements and self.elements[-1][0] in ("script", "style"):
            tag, before = self.raw[-1]
            self.raw[-1] = (tag, before + content)

    def handle_endtag(self, tag):
        self.elements.append((f"/{tag}", {}))


def data_text(html: str) -> str:
    """The data block as it stands in the page."""
    scripts = [raw for tag, raw in Elements(html).raw if tag == "script"]
    (block,) = [raw for raw in scripts if raw.startswith('{"sections"')]
    return block


def content(html: str) -> dict:
    """The data block, read as a browser does: JSON without NaN."""

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    return json.loads(data_text(html), parse_constant=refuse)


def turn(text="\\boxed{1}", agent="solver_0", batch=0, **fields) -> Turn:
    return Turn(
        index=batch, batch=batch, agent=agent, role=agent[:-2], text=text,
        messages=fields.pop("messages", (Message("user", "asked"),)), **fields,
    )  # fmt: skip


def episode(task="a", sample=0, correct: bool | None = True, **fields) -> Episode:
    fields.setdefault("events", [turn()])
    fields.setdefault("grade", Grade(correct=correct, answer="1", reason="compared", grader="g-1"))
    return Episode(
        env={"id": "math-v0", "kwargs": {"max_rounds": 2}}, prompts="tiny", task=task,
        sample=sample, question=fields.pop("question", f"question {task}"),
        gold=fields.pop("gold", "1"), reward=fields.pop("reward", float(correct is True)), **fields,
    )  # fmt: skip


def played(answers: dict[str, list[str]], texts=("<verify>approve</verify>",)) -> list[Episode]:
    """Real rollouts of math-v0: drafts by question (one per round), the given verdict texts."""
    tasks = load_tasks("arith", split="test", levels=[1, 2], n=4)
    env = mas_envs.make("math-v0", tasks=tasks, invalid_penalty=0.1)

    def draft(request):
        question = next(q for q in answers if q in request.messages[-1].content)
        return answers[question][min(request.key[2] // 2, len(answers[question]) - 1)]

    policies = {
        "solver": ScriptedPolicy(draft),
        "verifier": ScriptedPolicy(lambda request: texts[0]),
    }
    return asyncio.run(mas_envs.collect(env, policies, list(tasks)))


ONE_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
    "Jggg=="
)
