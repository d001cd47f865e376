"""Golden vectors for advantages and losses, and the means to run any trainer against them.

    from mas_train import conformance

    def mine(rewards, prompt, agent):  # your function, or a few lines that call it
        ...

    report = conformance.check_advantages(mine, preset="drmas")
    print(report)                 # case, verdict, largest error, what is wrong
    report.raise_for_failures()   # in a test

`python -m mas_train.conformance` checks this trainer. The expected numbers are made by
`mas_train.conformance.generate`, which shares no code with it. No torch is needed, except to check
the gradient of a function on tensors.
"""

from mas_train.conformance.cases import KINDS, Case, Kind, cases
from mas_train.conformance.check import check, check_advantages, check_loss
from mas_train.conformance.report import NotConformant, Report, Result

__all__ = [
    "KINDS",
    "Case",
    "Kind",
    "NotConformant",
    "Report",
    "Result",
    "cases",
    "check",
    "check_advantages",
    "check_loss",
]
