"""Corpora with many ties, and how Lucene's lists of them are written down and compared."""

import random
from pathlib import Path

from retrievers import Passage

GOLDEN = Path(__file__).parents[1] / "golden"
SCIFACT = Path(__file__).parents[4] / "shared/data/beir/scifact"

# fmt: off
WORDS = [
    "red", "blue", "green", "cat", "dog", "fox", "the", "of", "running", "Café", "naïve", "U.S.A.",
    "wi-fi", "黄山", "😀",
]
# fmt: on


def corpus(*texts):
    return [Passage(str(i), "", text) for i, text in enumerate(texts)]


def ids(passages):
    return [passage.id for passage in passages]


class Draws:
    """Choices made of `random.random` alone, whose numbers Python keeps the same for ever."""

    def __init__(self, seed):
        self._random = random.Random(seed).random

    def one(self, of):
        return of[int(self._random() * len(of))]

    def words(self, of, count):
        return " ".join(self.one(of) for _ in range(count))

    def shuffled(self, of):
        return [thing for _, thing in sorted((self._random(), thing) for thing in of)]


def random_corpus(seed):
    """Passages with repeated texts and ids out of order, and queries for them."""
    draws = Draws(seed)
    count = draws.one([1, 2, 5, 17, 60])
    lengths = [0, 1, 3, 8, 40]
    texts = [draws.words(WORDS, draws.one(lengths)) for _ in range(1 + count // 2)]
    forms = ["{}", "doc {}", "黄{}", "😀{}", "\uff5e{}"]
    ids = [draws.one(forms).format(n) for n in draws.shuffled(range(3 * count))[:count]]
    titles = ["", "", "Red fox"]
    passages = [Passage(id_, draws.one(titles), draws.one(texts)) for id_ in ids]
    queries = [draws.words(WORDS, draws.one([1, 2, 6, 30])) for _ in range(6)]
    return passages, [*queries, "red red red fox", "the of", ""]


def long_corpus():
    """Passages of up to 5,000 words, so that lengths lose digits in Lucene's one byte."""
    draws = Draws(7)
    words = [f"word{i}" for i in range(400)]
    texts = [draws.words(words, n) for n in (39, 40, 41, 150, 151, 999, 1000, 5000)]
    passages = [Passage(str(i), "", text) for i, text in enumerate(texts * 2)]
    return passages, [draws.words(words, n) for n in (1, 2, 5, 50, 400)]


def small_corpora():
    """Name, passages and queries of the corpora in `golden/small.tsv`."""
    for seed in range(40):
        yield f"ties {seed}", *random_corpus(seed)
    yield "long", *long_corpus()


def scifact_queries():
    lines = (SCIFACT / "queries.tsv").read_text("utf-8").rstrip("\n").split("\n")
    return dict(line.split("\t") for line in lines)


def listed(hits):
    return [(p.id, p.score) for p in hits]


def write_lists(path, lists):
    """One line a query: name, then id and score of each hit, separated by tabs."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for name, hits in lists.items():
            file.write("\t".join([name, *(f"{id_}\t{score}" for id_, score in hits)]) + "\n")


def read_lists(path):
    lists = {}
    for line in path.read_text("utf-8").split("\n")[:-1]:
        name, *fields = line.split("\t")
        lists[name] = list(zip(fields[::2], map(float, fields[1::2]), strict=True))
    return lists
