"""`mas-train plan`: what a configuration would run and what that needs, without a GPU or weights.

    from mas_train.plan import make_plan, report

    print(report(make_plan(load("team.yaml"))))

Shapes come from `config.json` or a table (`shapes`), bytes from `memory`, tokens and FLOPs from
`work`; each formula stands beside its code. No torch is imported here.
"""

from mas_train.plan.make import ModelPlan, Plan, make_plan
from mas_train.plan.memory import GIB
from mas_train.plan.text import DEVICES, report

__all__ = ["DEVICES", "GIB", "ModelPlan", "Plan", "make_plan", "report"]
