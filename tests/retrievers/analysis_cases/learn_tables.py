"""Writes retrievers/analysis/tables.txt from a live Lucene's answers.

    python learn_tables.py ANSERINI_FATJAR     (needs pyjnius and JAVA_HOME, Java 21 or later)

Lucene is asked one kind of question only: is this whole line one token? A code point's class is
its answers in the contexts below. The automaton is learnt as in Angluin's L* (1987): a state is
a row of answers for a growing set of endings; states reached by different texts must agree on
every further character, else their disagreement is a new ending. Three minutes.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from pathlib import Path

TABLES = Path(__file__).parents[3] / "retrievers/analysis/tables.txt"
# A letter for each class and a code point that has it. "." is all that is never in a token.
REPRESENTATIVES = {
    ".": " ",
    "a": "a",  # letters without a class of their own
    "A": "\u2139",  # letters that are emoji too
    "H": "\u05d0",  # Hebrew letters
    "9": "9",
    "_": "_",
    "'": "'",
    '"': '"',
    ":": ":",  # between letters
    ",": ",",  # between digits
    ";": "\u2019",  # between letters or digits
    "c": "\u6f22",  # ideographs and hiragana: tokens of one character
    "k": "\u30ab",  # katakana
    "t": "\u0e01",  # scripts of South-East Asia
    "y": "\u0e31",  # and their marks
    "x": "\u0301",  # combining marks, format characters
    "Z": "\u200d",  # zero-width joiner
    "u": "\ufe0e",  # text presentation
    "v": "\ufe0f",  # emoji presentation
    "K": "\u20e3",  # keycap
    "b": "#",  # bases of keycaps
    "P": "\u263a",  # pictographs
    "m": "\U0001f3fb",  # skin tones
    "R": "\U0001f1e6",  # regional indicators: two are a flag
    "g": "\U000e0061",  # tags of flags
    "G": "\U000e007f",  # end of the tags
}
# (before, after): which of the 1,114,112 code points give one token between these?
CONTEXTS = [
    ("", ""), ("a", "a"), ("9", "9"), ("", ",9"), ("", "'"), ("H", "H"), ("", "c"), ("", "t"),
    ("Z", ""), ("P", ""), ("P", "P"), ("", "K"), ("b", ""), ("b", "K"), ("R", "R"), ("R", ""),
    ("k", "k"), ("_", "k"), ("P", "G"), ("Pvg", ""), ("a", ""), ("H", ""), ("Pv", "G"),
]  # fmt: skip


def spelled(classes: Iterable[str]) -> str:
    return "".join(REPRESENTATIVES[letter] for letter in classes)


class Lucene:
    """StandardTokenizer, asked in batches."""

    def __init__(self, jar: str) -> None:
        import jnius_config

        jnius_config.set_classpath(jar)
        from jnius import autoclass, cast, find_javaclass

        self.string = autoclass("java.lang.String")
        self.reader = autoclass("java.io.StringReader")
        self.character = autoclass("java.lang.Character")
        self.tokenizer = autoclass("org.apache.lucene.analysis.standard.StandardTokenizer")()
        name = "org.apache.lucene.analysis.tokenattributes.OffsetAttribute"
        offset = self.tokenizer.getAttribute(find_javaclass(name))
        self.offset = cast(name, offset)

    def are_tokens(self, lines: list[str]) -> list[bool]:
        """Whether each line, read alone, is one token. No line has a line end."""
        answers: list[bool] = []
        for at in range(0, len(lines), 20_000):
            answers += self._are_tokens(lines[at : at + 20_000])
        return answers

    def _are_tokens(self, lines: list[str]) -> list[bool]:
        starts, place = {}, 0
        for number, line in enumerate(lines):
            starts[place] = number
            place += len(line.encode("utf-16-le", "surrogatepass")) // 2 + 1
        units = dict(zip(starts, [*list(starts)[1:], place], strict=True))
        text = "\n".join([*lines, ""]).encode("utf-16-le", "surrogatepass")
        self.tokenizer.setReader(self.reader(self.string(text, "UTF-16LE")))
        self.tokenizer.reset()
        answers = [False] * len(lines)
        while self.tokenizer.incrementToken():
            start = self.offset.startOffset()
            if start in starts:
                answers[starts[start]] = self.offset.endOffset() == units[start] - 1
        self.tokenizer.end()
        self.tokenizer.close()
        return answers


def learn_classes(lucene: Lucene) -> list[str]:
    """The class letter of each code point."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000 and code != 10]
    signature = [0] * 0x110000
    for number, (before, after) in enumerate(CONTEXTS):
        lines = [spelled(before) + chr(code) + spelled(after) for code in codes]
        for code, answer in zip(codes, lucene.are_tokens(lines), strict=True):
            signature[code] |= answer << number
    letters = {signature[ord(char)]: letter for letter, char in REPRESENTATIVES.items()}
    assert len(letters) == len(REPRESENTATIVES), "two classes answer alike: add a context"
    return [letters[answers] for answers in signature]


def learn_automaton(lucene: Lucene) -> list[tuple[bool, dict[str, int]]]:
    """(token, class letter -> state) for each state, 0 the start; no arrow where none can end."""
    known: dict[str, bool] = {}
    letters = list(REPRESENTATIVES)[1:]

    def rows(texts: list[str]) -> dict[str, tuple[bool, ...]]:
        asked = list({text + end for text in texts for end in endings} - known.keys())
        known.update(zip(asked, lucene.are_tokens([spelled(text) for text in asked]), strict=True))
        return {text: tuple(known[text + end] for end in endings) for text in texts}

    endings = ["", *letters]
    while True:
        states = {rows([""])[""]: ""}  # row -> first text that leads to it, shortest first
        queue = [""]
        while queue:
            text = queue.pop(0)
            for longer, row in rows([text + letter for letter in letters]).items():
                if any(row) and row not in states:
                    states[row] = longer
                    queue.append(longer)
        reached = [t + letter for t in states.values() for letter in letters]
        row_of = rows(reached)
        further = rows(
            [t + x for t, x in product(reached, letters)]
            + [t + x for t, x in product(states.values(), letters)]
        )
        new = {
            letter + endings[differs.index(True)]
            for text, letter in product(reached, letters)
            if any(row_of[text])
            and any(
                differs := [
                    a != b
                    for a, b in zip(
                        further[text + letter],
                        further[states[row_of[text]] + letter],
                        strict=True,
                    )
                ]
            )
        }
        new |= {
            letter + end
            for text, letter in product(reached, letters)
            if not any(row_of[text])
            for end, answer in zip(endings, further[text + letter], strict=True)
            if answer
        }
        if not new - set(endings):
            break
        endings += sorted(new - set(endings))
    number = {row: place for place, row in enumerate(states)}
    return [
        (known[text], {x: number[row_of[text + x]] for x in letters if any(row_of[text + x])})
        for text in states.values()
    ]


def class_lines(class_of: list[str]) -> Iterator[str]:
    spans = defaultdict(list)
    for letter, run in groupby(range(0x110000), class_of.__getitem__):
        codes = list(run)
        spans[letter].append(f"{codes[0]:04X}" + (f"-{codes[-1]:04X}" if codes[1:] else ""))
    for letter in list(REPRESENTATIVES)[1:]:
        yield f"class {letter} {' '.join(spans[letter])}"


def state_lines(states: list[tuple[bool, dict[str, int]]]) -> Iterator[str]:
    """The start and the states where no token ends, then those where one ends."""
    order = sorted(range(len(states)), key=lambda place: (place > 0, states[place][0], place))
    new = {place: number for number, place in enumerate(order)}
    for place in order:
        token, arrows = states[place]
        by_target = defaultdict(str)
        for letter, target in arrows.items():
            by_target[new[target]] += letter
        parts = [f"{letters}>{target}" for target, letters in sorted(by_target.items())]
        yield " ".join([f"state {new[place]}", *["token"] * token, *parts])


def lower_lines(lucene: Lucene, class_of: list[str]) -> Iterator[str]:
    """Java's lower case of each character that can be in a token."""
    lower = {}
    for code in range(0x110000):
        if class_of[code] != "." and (small := lucene.character.toLowerCase(code)) != code:
            assert (small > 0xFFFF) == (code > 0xFFFF), f"{code:04X} changes its length"
            lower[code] = small
    codes = sorted(lower)
    while codes:
        first, distance = codes[0], lower[codes[0]] - codes[0]
        step = codes[1] - first if codes[1:] and codes[1] - first < 3 else 1
        run = [first]
        while lower.get(run[-1] + step, 0) - run[-1] - step == distance:
            run.append(run[-1] + step)
        yield f"lower {first:04X}-{run[-1]:04X} {step} {distance}"
        codes = codes[len(run) :] if step == 1 else sorted(set(codes) - set(run))


if __name__ == "__main__":
    lucene = Lucene(sys.argv[1])
    class_of = learn_classes(lucene)
    lines = [
        "# Written by tests/retrievers/analysis_cases/learn_tables.py; tables.py says what it is.",
        *class_lines(class_of),
        *state_lines(learn_automaton(lucene)),
        *lower_lines(lucene, class_of),
    ]
    TABLES.write_text("\n".join(lines) + "\n", "ascii")
