"""Grading: is the final answer right? `grade_math` for formulas, `grade_qa` for short texts.

Both take a whole completion and return a `Grade`. What the response causes is a wrong answer with
a status; `correct` is None only where the machinery or the reference answer is at fault.
`grade_many` grades on all cores; `normal_gold` refuses a reference answer that nobody could be
held to. Importing this package loads neither sympy nor mpmath.
"""

from mas_envs.grading.gold import normal_gold
from mas_envs.grading.math_answer import grade_math, grade_math_here
from mas_envs.grading.policy import MathPolicy, math_policy
from mas_envs.grading.processes.batch import grade_many
from mas_envs.grading.qa import grade_qa

__all__ = [
    "MathPolicy",
    "grade_many",
    "grade_math",
    "grade_math_here",
    "grade_qa",
    "math_policy",
    "normal_gold",
]
