r"""Are two formulas equal? From a text to a verdict, nothing of it ever executed.

Read `equality` first: it names the layers. Below it, in the order in which a text passes them:

- Spelling: `notation` gives one text for one meaning, by the rules of `rewrites` and the tables of
  `spelling`.
- Form: `structure` (lists, sets, tuples, matrices, relations), with `signs` (plus or minus),
  `clauses` (`, k \in \mathbb{Z}` behind an answer) and `matrices`.
- Relations: `names` (what may stand left of `=`), `relations`, `relation_equality`.
- Sets of reals: `reals` and `cuts`. Residues: `residues`. Forms part by part: `parts`.
- One value: `scalar`; `words`, `quantity` with `units`, then `numbers` with `numerals`, `rounding`
  and `written_form`.
- Formulas: `tokens`, `expression` (the reader), `trees`; `evaluate` (what one is worth),
  `agreement` at `points` (are two equal?).

The bounds that everything is held to stand in `limits`.
"""
