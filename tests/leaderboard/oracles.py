"""A script that knows the answers and is wrong now and then, for every environment of a suite."""

from __future__ import annotations

import functools
import random

from mas_envs.tasks import load_tasks


@functools.cache
def tasks():
    known = [*load_tasks("tinyworld", split="test", n=400)]
    known += load_tasks("arith", split="test", levels=[1, 2, 3], n=240)
    return {task.question: task for task in known}


def oracle(request):
    shown = request.messages[-1].content
    # The longest one: "3+4" is found in "13+4", too.
    question = max((q for q in tasks() if q in shown), key=len)
    answer, chance = tasks()[question].answer, random.Random(request.seed).random()
    answer = answer if isinstance(answer, str) else answer[0]
    answer = answer if chance < 0.7 else "12"
    searched = shown.count("[1]") + shown.count("<information>")
    match request.role:
        case "verifier":
            return f"<verify>{'yes' if searched and chance < 0.8 else 'no'}</verify>"
        case "search":
            return f"<think>So far {searched}.</think><search>{question}</search>"
        case "answer":
            return f"<think>{chance:.3f}</think><answer>{answer}</answer>"
        case "searcher" if not searched:
            return f"<think>Nothing yet.</think><search>{question}</search>"
        case "searcher":
            return f"<think>{chance:.3f}</think><answer>{answer}</answer>"
        case _:
            return rf"I say \boxed{{{answer}}} ({chance:.3f})."
