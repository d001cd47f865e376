"""The normaliser `strict`: one form for the spellings of an answer, and no two answers in one.

SQuAD's makes "3.14" equal "314", "-5" equal "5", "C++" equal "C", an answer "A" empty, and leaves
the quotes, dashes and accents of Unicode alone. Here:

- Characters: NFKC and case folding; accents of Latin, Greek and Cyrillic dropped (but й is not и),
  "ø" is "o", "æ" "ae", "ß" "ss"; one kind of quote, dash, minus and digit; what is invisible goes;
  "10²" is not "102" and "1½" not "11/2".
- Punctuation: apostrophes, quotes and full stops vanish ("U.S." is "us"), all else separates words.
  Kept: a point, dash, colon or slash between digits, a minus before a number, what bounds or
  approximates one ("<5"), "+" and "#" behind a word ("C++"), "-" behind a grade or a blood group
  ("AB-"). "3,000" is "3000"; "1,5" two numbers.
- Words: "&" is "and"; "J. K. Rowling" is "JK Rowling"; "Jr.", "Dr.", "Mt." … are written out; an
  article goes where a word follows it, not at the end, before a hyphen ("A-Team"), as a label
  ("Vitamin A deficiency"), a key ("A minor") or an initial ("John A. Macdonald"; "A" between
  words with capitals).
- Numbers: words are digits, ordinals too ("twentieth" is "20th"); "14 December 1972" is
  "December 14th, 1972" and "1972-12-14"; "1990 to 1995" is "1990–1995"; "5km" is "5 kilometres";
  "44 BCE" is "44 BC".
- A text that would become empty stays as it was, but for case and the kind of its characters.

`same` also lets pass what has two readings: a hyphen inside a word counts as a space or as nothing
("Spider-Man" is "Spiderman" and "Spider Man"); "a" in small letters is an article or an initial; a
sign of money, percent or degrees can be a word, or missing on one side ("$5" is "5" and "5
dollars", "€5" is not "$5"); "10 000" is also "10000".
Not merged: Roman numerals, "St." and "Saint", decimal commas, dates in numerals but for ISO's.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from mas_envs.grading.number_words import in_digits
from mas_envs.grading.texts.measures import SIGN, signs_in_words, spelt_alike, without_signs

_ALIKE = {
    **dict.fromkeys("‘’‛ʻʼʽʹ′´ˈ`", "'"),
    **dict.fromkeys("“”„‟«»″", '"'),
    **dict.fromkeys("‐‑‒–—―−", "-"),
    **dict.fromkeys("™®©℠", ""),
    **{"×": "x", "⁄": "/", "∕": "/", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d"},
    **{"ð": "d", "þ": "th", "ı": "i", "ħ": "h", "≈": "~", "∼": "~", "〜": "~"},
    **{"♯": "#", "♭": " flat ", "≠": " not ", "‰": " per mille ", "¢": " cents "},
}
_KEPT = "€£¥₹°±≤≥"
_EXPONENT = re.compile(r"(?<=[0-9])(?=[⁰¹²³⁴-⁹⁺⁻])")
_FRACTION = re.compile(r"(?<=[0-9])(?=[¼-¾⅐-⅞])")
# An initial is no article: it becomes a letter of its own, which no later step drops.
_INITIAL = re.compile(r"(?<![\w.])[Aa]\.(?= \w)|(\b[A-Z][\w.'’-]{0,30} )A(?= [A-Z])")
_PERHAPS = re.compile(r"(?<![^ ])a[ -](?=\w)")
_ACCENT = re.compile("(?<!и)\u0306|[\u0300-\u0305\u0307-\u036f]")


class _Characters(dict[int, str]):
    """Of any character, what stands for it; looked up once each for the common ones."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if code < 128 or char in _KEPT:
            found = char
        elif category == "Nd":
            found = str(unicodedata.digit(char))
        elif category == "Cf" or 0xFE00 <= code <= 0xFE0F:
            found = ""
        else:
            found = " " if category[0] in "PSZ" or category in ("Cc", "Cs") else char
        if code < 0x3000:
            self[code] = found
        return found


_CHARACTERS = _Characters({ord(char): found for char, found in _ALIKE.items()})
_BEFORE = str.maketrans(_ALIKE)


def _plain(text: str) -> str:
    """Lower case, no accents, one kind of each character, one space between words."""
    text = _INITIAL.sub(r"\1ᴀ", " ".join(text.split()))
    if text.isascii():
        return " ".join(text.lower().split())
    text = _FRACTION.sub(" ", _EXPONENT.sub("^", text.translate(_BEFORE)))
    text = unicodedata.normalize("NFKC", text.casefold()).casefold()
    text = _ACCENT.sub("", unicodedata.normalize("NFD", text))
    return " ".join(unicodedata.normalize("NFKC", text).translate(_CHARACTERS).split())


_MARKUP = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it))(?=\{)")
_FEET = re.compile(r"(?<!\w)(\d)' ?(\d{1,2})(?:\"|''|(?!\w))")
_PUNCTUATION = str.maketrans(
    {**dict.fromkeys("'\"`"), **dict.fromkeys("!()*;=?@[]{}|\\_", " "), "&": " and "}
)
_CONTEXT = re.compile(r"[.,:/^+#<>~±≤≥-]")
_POINTED = re.compile(r"(?<![^\W_])([a-z]\.) (?=[a-z]\.)")
_GROUPED = re.compile(
    r"(?<![\w.,])(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d\d)+,\d{3})(?![\d,]*\d)"
)
_POINT_OF_WORD = re.compile(r"\.(?=[^\W\d]{2})|(?<=[^\W\d])\.(?=\d)")
_POINT = re.compile(r"\.(?!\d)")
_LEADING_POINT = re.compile(r"(?<!\d)\.(?=\d)")
_ARTICLE_HYPHEN = re.compile(r"\b(an?|the)-(?=\w)")
_RATED = re.compile(r"(?<!\S)([a-fo]|ab)-(?!\S)")
_DASH = re.compile(r"(?<=[^\W\d])-|(?<=\d)-(?!\d)|(?<!\w)-(?!\.?\d)")
_BETWEEN = re.compile(r"(?<!\d)[:/]|[:/](?!\d)")
_BOUND = re.compile(r"([<>~±≤≥]) *(?=-?\d)|[<>~±≤≥]")
_PLUS = re.compile(r"(?<![\w+#])[+#]+")
_CARET = re.compile(r"(?<!\d)\^|\^(?!-?\d)")

_INITIALS = re.compile(r"(?<!\d )\b(?!t h e\b)[b-zᴀ](?: [a-zᴀ])+\b")
_ROCK_N_ROLL = re.compile(r"(?<=[a-z]{2}) n (?=[a-z]{2})")
_ARTICLE = re.compile(
    r"\b(?:an|the|(?<!vitamin )(?<!hepatitis )(?<!influenza )(?<!type )(?<!class )(?<!grade )"
    r"(?<!group )(?<!plan )(?<!option )(?<!schedule )(?<!section )(?<!serie )(?<!series )"
    r"(?<!\b[b-z] )a(?! (?:major|minor|flat|sharp|minus)\Z)) (?=\S)"
)
_SHORT = {"jr": "junior", "sr": "senior", "vs": "versus"}
_TITLES = {"dr": "doctor", "mr": "mister", "mt": "mount"}
_SHORTENED = frozenset([*_SHORT, *_TITLES])
_DIGIT = re.compile(r"\d")


def _spelt(plain: str) -> str:
    """The normal form of `_plain` text without signs; "" where nothing is left."""
    form = _once(plain)
    for _ in range(3):  # what a later step made may be an earlier one's: nearly never more than 1
        if form == plain:
            break
        plain, form = form, _once(form)
    return form


def _once(plain: str) -> str:
    text = plain
    if not (plain.isascii() and plain.replace(" ", "").isalpha()):  # most answers are just words
        text = _without_punctuation(plain)
    bare = _ARTICLE.sub("", text)
    text = _ROCK_N_ROLL.sub(" and ", text if bare == "the" else bare)  # the band is The The
    words = _INITIALS.sub(lambda m: m[0].replace(" ", "").replace("ᴀ", "a"), text).split()
    if not _SHORTENED.isdisjoint(words):
        words = _in_full(words)
    text = " ".join(in_digits(words))
    return spelt_alike(text) if _DIGIT.search(text) else text


def _without_punctuation(text: str) -> str:
    text = _MARKUP.sub(" ", text) if "\\" in text else text
    text = _FEET.sub(r"\1 feet \2 inches ", text) if "'" in text else text
    text = text.replace("<=", "≤").replace(">=", "≥").translate(_PUNCTUATION)
    if _CONTEXT.search(text):
        text = _without_marks(text)
    return " ".join(text.split())


def _without_marks(text: str) -> str:
    """Without the punctuation that counts in some places: points, commas, dashes …"""
    if "^" in text:
        text = _CARET.sub("", text)
    if "." in text:
        text = _POINT_OF_WORD.sub(" ", _POINTED.sub(r"\1", text))
        text = _LEADING_POINT.sub("0.", _POINT.sub("", text))
    if "," in text:
        text = _GROUPED.sub(lambda m: m[0].replace(",", ""), text).replace(",", " ")
    if "-" in text:
        text = _RATED.sub(r"\1 minus", text)
        text = _DASH.sub(" ", _ARTICLE_HYPHEN.sub(r"\1", re.sub(r"(?<=\d) - (?=\d)", "-", text)))
    text = _BOUND.sub(lambda m: m[1] or " ", _BETWEEN.sub(" ", text))
    return _PLUS.sub(" ", text)


def _in_full(words: list[str]) -> list[str]:
    last = len(words) - 1
    return [
        _TITLES.get(word, word) if at < last and word in _TITLES
        else _SHORT.get(word, word) if at > 0 else word
        for at, word in enumerate(words)
    ]  # fmt: skip


def normalise(text: str) -> str:
    """The normal form, its words parted by one space. The module says what it merges."""
    return _spelt(without_signs(_plain(text))) or _as_it_was(text)


def _as_it_was(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text.translate(_BEFORE).casefold()).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split()) or text.strip()


_INNER_HYPHEN = re.compile(r"(?<=[^\W\d])-(?=\w)|(?<=\d)-(?=[^\W\d])")
_GROUPED_BY_SPACE = re.compile(r"(?<![\w.,:/-])(?<!\d )[1-9]\d{0,2}(?: \d{3})+(?![\w]| \d)")


def _readings(plain: str) -> set[str]:
    """The normal form; and with hyphens, or the spaces inside numbers, as nothing; "a" a name."""
    found = {_spelt(plain)}
    if _PERHAPS.search(plain):
        found.add(_spelt(_PERHAPS.sub("ᴀ ", plain)))
    if "-" in plain:
        found.add(_spelt(_INNER_HYPHEN.sub("", plain)))
    if " " in plain and _GROUPED_BY_SPACE.search(plain):
        found.add(_spelt(_GROUPED_BY_SPACE.sub(lambda m: m[0].replace(" ", ""), plain)))
    return found


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The signs of a text, its readings without them and, if it has any, with them as words."""
    plain = _plain(text)
    signs = frozenset(SIGN.findall(plain))
    bare_text = without_signs(plain) if signs else plain
    bare = frozenset(form or _as_it_was(text) for form in _readings(bare_text))
    worded = frozenset(_readings(signs_in_words(plain))) if signs else frozenset()
    return signs, bare, worded


def paired(answer: str, gold: str) -> tuple[frozenset[str], frozenset[str]]:
    """The readings of both that may be compared: bare ones unless their signs contradict."""
    (signs, bare, worded), (gold_signs, gold_bare, gold_worded) = _read(answer), _read(gold)
    if not signs and not gold_signs:
        return bare, gold_bare
    if not signs or not gold_signs or signs == gold_signs:
        return bare | worded, gold_bare | gold_worded
    return worded, gold_worded


def same(answer: str, gold: str) -> bool:
    """Are they one answer in two spellings? Symmetric."""
    if answer == gold:
        return True
    answers, golds = paired(answer, gold)
    return not golds.isdisjoint(answers)


_YES_OR_NO = re.compile(r"\W*(yes|no|noanswer)(?:\s*[,;:!–—-]|\.(?!\s*\d)|\W*\Z)", re.IGNORECASE)


def contains(answer: str, gold: str) -> bool:
    """Does the answer have the gold in it, as whole words? `same` answers have.

    A gold "yes" or "no" must come first, before a comma, full stop or the like, and its opposite
    nowhere: neither "no" is in "no one", nor in "Yes, there is no doubt".
    """
    answers, golds = paired(answer, gold)
    if not golds.isdisjoint(answers):
        return True
    if verdict := golds & {"yes", "no", "noanswer"}:
        said = _YES_OR_NO.match(answer)
        words = normalise(answer).split()
        return said is not None and {said[1].lower()} == verdict == verdict.union(words) & {
            "yes", "no", "noanswer"}  # fmt: skip
    return any(f" {gold} " in f" {answer} " for gold in golds for answer in answers)
