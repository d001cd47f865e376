"""Porter's stemmer as Lucene has it.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the changes of
Porter's own later code: words of one or two letters stay, "-bli" gives "-ble", "-logi" gives
"-log". Snowball's "porter" lacks them, so its stems differ ("archaeology", "possibly").
"""

from __future__ import annotations

import re

# A word is [C](VC)^m[V]: runs of consonants and of vowels, m its measure. y is a vowel after a
# consonant; whatever is no vowel, in any script, is a consonant. No run gives letters back
# (`*+`), so no match takes more than linear time.
_C, _V = "[^aeiou][^aeiouy]*+", "[aeiouy][aeiou]*+"
_has_vowel = re.compile(f"(?:{_C})?+[aeiouy]").match
_measure_above_0 = re.compile(f"(?:{_C})?+{_V}[^aeiou]").match
_measure_above_1 = re.compile(f"(?:{_C})?+{_V}{_C}{_V}[^aeiou]").match
_ends_in_consonant = re.compile(f"(?:{_C})?+(?:{_V}{_C})*+\\Z").match
# Ends in consonant, vowel, consonant other than w, x, y: "hop", not "snow".
_short_ending = re.compile(f"(?:{_C}|[aeiou]++{_C})(?:{_V}{_C})*[aeiouy][^aeiouwxy]\\Z").match


def _by_letter(place: int, rules: str) -> dict[str, list[tuple[str, str]]]:
    """(ending, replacement) rules written "ending>replacement", by the ending's `place`."""
    table: dict[str, list[tuple[str, str]]] = {}
    for rule in rules.split():
        ending, _, replacement = rule.partition(">")
        table.setdefault(ending[place], []).append((ending, replacement))
    return table


_STEP_2 = _by_letter(
    -2,
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e "
    "ousli>ous ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous "
    "aliti>al iviti>ive biliti>ble logi>log",
)
_STEP_3 = _by_letter(-1, "icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_STEP_4 = _by_letter(
    -2,
    "al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> ion> ou> ism> ate> iti> ous> "
    "ive> ize>",
)


def stem(word: str) -> str:
    """The stem of a lower-case word. A character beyond U+FFFF must count as two, as in Java."""
    if len(word) < 3:
        return word
    word = _past_and_plural(word)
    if word[-1] == "y" and _has_vowel(word, 0, len(word) - 1):
        word = word[:-1] + "i"
    if len(word) == 1:
        return word
    for ending, replacement in _STEP_2.get(word[-2], ()):
        if word.endswith(ending):
            if _measure_above_0(word, 0, len(word) - len(ending)):
                word = word[: -len(ending)] + replacement
            break
    for ending, replacement in _STEP_3.get(word[-1], ()):
        if word.endswith(ending):
            if _measure_above_0(word, 0, len(word) - len(ending)):
                word = word[: -len(ending)] + replacement
            break
    for ending, _ in _STEP_4.get(word[-2:-1], ()):
        if word.endswith(ending):
            root = len(word) - len(ending)
            if (ending != "ion" or word[:root].endswith(("s", "t"))) and _measure_above_1(
                word, 0, root
            ):
                word = word[:root]
            break
    return _final_e_and_l(word)


def _past_and_plural(word: str) -> str:
    """Step 1: -s, -ed, -ing."""
    if word[-1] == "s":
        if word.endswith(("sses", "ies")):
            word = word[:-2]
        elif word[-2] != "s":
            word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure_above_0(word, 0, len(word) - 3) else word
    root = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
    if not _has_vowel(root):
        return word
    if root.endswith(("at", "bl", "iz")):
        return root + "e"
    if root[-1] == root[-2:-1] and _ends_in_consonant(root):
        return root if root[-1] in "lsz" else root[:-1]
    if _measure_above_0(root) and not _measure_above_1(root) and _short_ending(root):
        return root + "e"
    return root


def _final_e_and_l(word: str) -> str:
    """Step 5: -e, and -ll to -l, of longer words."""
    if word[-1:] == "e" and _measure_above_0(word, 0, len(word)):
        root = word[:-1]
        if _measure_above_1(word) or not _short_ending(root):
            word = root
    if word.endswith("ll") and _measure_above_1(word):
        word = word[:-1]
    return word
