"""The golden cases' numbers, made anew: `python -m mas_train.conformance.generate`.

Plain loops over dictionaries and lists, means and variances in exact fractions, gradients by hand:
slow, short, and sharing no code with the trainer that is checked against them. Results are rounded
to 13 digits, so that every platform writes the same files.
"""
