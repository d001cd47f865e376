r"""Are two formulas equal? From a text to a verdict, nothing of it ever executed.

Reading: `notation` (one spelling) → `structure` (lists, tuples, matrices …), `relations`,
`clauses`, `signs` → `quantity` and `units` → `expression` (a tree). Worth: `evaluate` and
`agreement`. Verdict: `equality`, with `reals`, `residues`, `matrices` for their forms and `scalar`
at the leaves. The bounds that everything is held to stand in `limits`.
"""
