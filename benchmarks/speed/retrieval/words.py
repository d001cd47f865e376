"""The vocabulary of the synthetic corpus: numbers that stand for words, and how they are spelt.

Never change what this yields (see `synthetic`).
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Times in 8,800 words of an encyclopedia that are no figures and not its topic, roughly.
COMMON = """
the 660 of 330 and 280 in 270 a 210 to 200 was 110 is 85 for 80 as 78 on 72 by 70 with 66 that 60
from 52 he 48 at 45 it 42 his 40 an 40 were 33 are 32 which 30 also 27 be 25 had 24 or 24 this 24
has 23 one 22 its 22 first 20 not 20 their 20 her 18 but 18 who 17 after 15 they 16 been 14 have 14
two 14 new 13 she 13 when 12 other 11 during 11 all 11 into 11 time 10 more 10 years 9 would 9
there 9 no 7 most 8 school 8 some 8 city 8 may 8 over 8 where 7 only 7 world 7 between 7 later 7
up 7 about 7 season 7 team 6 than 6 such 6 film 6 many 6 year 6 united 6 three 6 these 5 will 5
national 5 university 5 made 5 out 5 while 5 used 5 part 5 known 5 American 5 became 5 him 5
state 5 under 5 war 5 being 5 then 4 through 4 before 4 people 4 music 4 well 4 both 4 series 4
company 4 group 4 early 4 several 4 high 4 number 4 second 4 against 4 since 4 born 4 family 4
album 4 name 4 until 4 however 4 south 4 life 4 called 4 game 4 if 4 around 4 can 4 same 4 work 4
so 4 began 4 include 4 following 4 north 4 area 4 including 4 member 4 house 4
"""
_ONSETS = """
b b c c d d f f g h h j k l l l m m m n n p p r r r s s s t t t v w y z
bl br ch cl cr dr fl fr gr pl pr qu sh sl sp st str th tr wh
"""
_VOWELS = "a a a a e e e e e i i i i o o o u u ai ea ee ie oo ou"
_CODAS = "n n n n r r r r l l s s t t m d ck g nd ng nt p rd rm rt ss st th x"
_ENDINGS = "s s s s ed ed ing ing er ly al ic ion ation ness ment able ity ism ies"
ONSETS, VOWELS = _ONSETS.split(), _VOWELS.split()
CODAS, ENDINGS = [""] * 30 + _CODAS.split(), [""] * 30 + _ENDINGS.split()
FOREIGN = "éöüñøçáš"

BODY = 300_000  # words of the table besides the common ones
RARE = 600  # of these, too frequent to be a passage's own
NAMES = 1 << 20  # token numbers from here to FIGURES are names
FIGURES = 1 << 40  # token numbers from here are figures
SHARES = 40  # frequencies sum to 2^SHARES


class Vocabulary(NamedTuple):
    """The words of the table, and the running sums of their frequencies."""

    words: list[str]
    sums: NDArray[np.uint64]
    guide: NDArray[np.int32]  # the word of each multiple of 2^20: most draws need no search
    rare: int  # the sum from which on words are rare enough to be a passage's own

    def drawn(self, draws: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Token numbers for integers below 2^SHARES, each as often as its frequency says."""
        bucket = (draws >> np.uint64(20)).astype(np.int64)
        found = self.guide[bucket]
        unclear = found != self.guide[bucket + 1]
        found[unclear] = np.searchsorted(self.sums, draws[unclear], side="right")
        return found.astype(np.uint64)


def raw(count: int, *seed: int) -> NDArray[np.uint64]:
    """`count` 64-bit integers that depend on `seed` alone."""
    drawn: NDArray[np.uint64] = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(count)
    return drawn


@cache
def vocabulary() -> Vocabulary:
    """Made once per process."""
    listed = zip(COMMON.split()[::2], COMMON.split()[1::2], strict=True)
    weights = {word: int(times) << 24 for word, times in listed}
    shares = [(1 << 40) // (rank + 50) for rank in range(BODY)]  # Zipf-Mandelbrot
    left, of = (8_800 << 24) - sum(weights.values()), sum(shares)
    rank = 0
    for draw in chain.from_iterable(raw(BODY, 40, part).tolist() for part in range(40)):
        word = _word(draw, rank)
        if word not in weights:  # spelt as one before: another draw
            weights[word] = shares[rank] * left // of
            rank += 1
            if rank == BODY:
                break
    total = sum(weights.values())
    running = [(so_far << SHARES) // total for so_far in accumulate(weights.values())]
    sums = np.array(running, dtype=np.uint64)
    buckets = np.arange((1 << (SHARES - 20)) + 1, dtype=np.uint64) << np.uint64(20)
    guide = np.searchsorted(sums, buckets, side="right").astype(np.int32)
    return Vocabulary(list(weights), sums, guide, running[len(running) - BODY + RARE])


def _word(draw: int, rank: int) -> str:
    """The rarer, the longer; a third of those beyond the first thousand are capitalised."""
    draw, kind = divmod(draw, 1024)
    draw, ending = divmod(draw, len(ENDINGS))
    syllables = 1 + (rank > 100) + (rank > 20_000 and kind % 2)
    word = _syllables(draw, syllables) + ENDINGS[ending]
    if kind % 100 == 7:
        word = word[:-1] + FOREIGN[kind // 128]
    if kind % 100 == 8:
        word += "-" + _syllables(draw >> 20, 1)
    return word.capitalize() if rank > 1000 and kind % 3 == 0 else word


def _syllables(draw: int, count: int) -> str:
    parts = []
    for _ in range(count):
        draw, onset = divmod(draw, len(ONSETS))
        draw, vowel = divmod(draw, len(VOWELS))
        draw, coda = divmod(draw, len(CODAS))
        parts += [ONSETS[onset], VOWELS[vowel], CODAS[coda]]
    return "".join(parts)


def spell(token: int) -> str:
    """The word, name or figure that a token number stands for."""
    if token < NAMES:
        return vocabulary().words[token]
    if token >= FIGURES:
        return _figure(token - FIGURES)
    mixed = (token - NAMES) * 0x9E3779B1 % (1 << 32)  # neighbours shall not look alike
    return _syllables(mixed, 2 + mixed % 2).capitalize()


def _figure(draw: int) -> str:
    draw, kind = divmod(draw, 8)
    if kind < 4:
        return str(1800 + draw % 226)  # a year
    if kind == 4:
        return f"{draw % 300}.{draw // 300 % 10}"
    if kind == 5:
        return f"{1 + draw % 90},{draw // 90 % 1000:03d}"
    return f"({1500 + draw % 526})" if kind == 6 else str(1 + draw % 100)
