"""grade_qa: own cases, the shared cases, properties."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.grading import grade_qa
from mas_envs.grading.texts.strict_text import normalise

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("Emmanuel Macron", "emmanuel macron!", True),
        ("A", "A", True),
        ("A", "B", False),
        ("A", "The", False),
        ("the", "a", False),
        ("Plan A", "Plan", False),
        ("Vitamin A", "vitamin a", True),
        ("The Who", "Who", True),
        ("The Beatles", "Beatles", True),
        ("Hawai‘i", "Hawai'i", True),
        ("Rock ’n’ Roll", "rock n roll", True),
        ("AC/DC", "AC DC", True),
        ("New_York", "New York", True),
        ("-5", "5", False),
        ("-5", "−5", True),
        ("−5 °C", "-5 C", True),
        ("3.14", "314", False),
        ("3.14", "3.14.", True),
        ("1,5", "15", False),
        ("3,000", "3000", True),
        ("1,234,567", "1234567", True),
        ("3,000", "3.000", False),
        ("U.S.", "US", True),
        ("U.S.A.", "USA", True),
        ("E. coli", "E.coli", True),
        ("C++", "C", False),
        ("C#", "C", False),
        ("$5 million", "5 million", True),
        ("50%", "50", True),
        ("1990–1995", "1990-1995", True),
        ("1990-1995", "19901995", False),
        ("Spider-Man", "Spiderman", True),
        ("Spider-Man", "Spider Man", True),
        ("well–known", "well-known", True),
        ("F-16", "F16", True),
        ("Beyoncé", "Beyonce", True),
        ("Dvořák", "Dvorak", True),
        ("東京", "東京", True),
        ("東京", "京都", False),
        ("한국", "한국", True),
        ("हिन्दी", "हन्द", False),
        ("14 December 1972", "December 14, 1972", True),
        ("14th of December 1972", "December 14, 1972", True),
        ("14 December 1972", "December 15, 1972", False),
        ("five", "5", True),
        ("one season", "1 season", True),
        ("no", "No.", True),
        ("no", "North Carolina", False),
        ("yes", "yes, they are", False),
        ("US", "Australus", False),
        ("!!!", "!!!", True),
        ("!!!", "???", False),
        ("10:30", "10.30", False),
        ("Ａ１", "A1", True),
    ],
)
def test_own_case(gold: str, answer: str, expected: bool) -> None:
    assert grade_qa(answer, [gold]).correct is expected, (normalise(gold), normalise(answer))
    assert grade_qa(gold, [answer]).correct is expected, "not symmetric"
    assert grade_qa(f"hm <answer> {answer} </answer> so", gold).correct is expected


# One answer in several spellings, each with each.
SAME = """
14 December 1972 == 1972-12-14 == Dec. 14, 1972 == December 14th, 1972
14 December 1972 == the 14th of December, 1972 == 14 Dec 1972 == 1972/12/14
September 11 == 11 September
Sept. 11, 2001 == 11 September 2001
December 1972 == Dec 1972 == December, 1972
the fifth of May == May 5th
July fourth == 4 July
first == 1st
twenty-first century == 21st century
Twentieth Century Fox == 20th Century Fox
twenty-one == 21
Twenty One Pilots == 21 pilots
one hundred and one dalmatians == 101 Dalmatians
two million == 2,000,000
1.5 million == 1,500,000
two thousand and eighteen == 2018
a hundred == 100
five hundred thousand == 500,000
$5 million == 5 million dollars == $5,000,000 == $5m == US$5 million == 5 million US dollars
€5 == 5 euros
£1,000 == 1000 pounds
$5.00 == $5
$5 == 5
50% == 50 percent == 50 per cent == fifty percent
50% == 50
-5 °C == -5 C
-5 °C == -5 degrees Celsius
90° == 90 degrees
10 000 == 10,000 == 10000
1 234 567 == 1,234,567
1,00,000 == 100000
J. K. Rowling == J.K. Rowling == JK Rowling == J K Rowling == J.K.Rowling
U. S. A. == USA
George W. Bush == George W Bush
Simon & Garfunkel == Simon and Garfunkel
Rock 'n' Roll == rock and roll
Guns N' Roses == Guns N’ Roses
R&B == R & B
AT&T == AT & T
Sammy Davis, Jr. == Sammy Davis Jr
Sammy Davis Jr. == Sammy Davis Junior
Dr. Strange == Doctor Strange
Mt. Everest == Mount Everest
Roe vs. Wade == Roe versus Wade
1990–1995 == 1990-1995 == 1990 to 1995 == from 1990 to 1995
1990 – 1995 == 1990–1995
2007/08 == 2007–08
5km == 5 km == 5 kilometers
5 kilometres == 5 kilometers
60 mph == 60 miles per hour
6 feet == 6 ft
44 BC == 44 B.C. == 44 BCE
AD 79 == 79 AD
5 p.m. == 5pm
5:00 pm == 5 PM
10:30 a.m. == 10:30am
１２３ == 123
ﬁnal == final
Straße == Strasse
Søren Kierkegaard == Soren Kierkegaard
Łódź == Lodz
Besançon == Besancon
Nguyễn == Nguyen
"Paris" == Paris
**Paris** == Paris
“Paris” == Paris
(Paris) == Paris
\\text{Paris} == Paris
Paris\u200b == Paris
\u200eParis == Paris
Pa\u00adris == Paris
H₂O == H2O
Xbox™ == Xbox
½ == 1/2
1½ == 1 1/2
10² == 10^2
4×4 == 4 x 4
.5 == 0.5
(3.14) == 3.14
3.14. == 3.14
$1,000. == 1000
don't == dont
minus 5 == -5
negative five == -5
M*A*S*H == MASH
No. 1 == Number 1
The A-Team == A-Team
Yes 👍 == yes
٣ == 3
Ёлка == елка
C++ == c++
A+ == a+
Paris, France == Paris (France)
Hawai`i == Hawai'i
rock-n-roll == rock n roll
Jay-Z == Jay Z
Jay-Z == JayZ
co-operate == cooperate
AC/DC == AC DC
the 1960s == 1960s
1960's == 1960s
9.5% == 9.5 percent
One == 1
ninety-nine == 99
Henry the Eighth == Henry the 8th
five to ten == 5–10
‘Hamlet’ == Hamlet
E=mc² == E = mc^2
6'5" == 6 ft 5 in
6′5″ == 6 feet 5 inches
5'9 == 5 foot 9 inches
5'000 == 5,000
Ph.D. == PhD
St.Louis == St. Louis
Vol.2 == Vol. 2
AD 90–110 == 90–110 AD
wait...and see == wait... and see
naïve == naive
Mötley Crüe == Motley Crue
"""

# Near misses.
DIFFERENT = """
14 December 1972 != 15 December 1972
14 December 1972 != 14 December 1973
14 December 1972 != December 1972
12 November 1972 != 11 December 1972
1972-12-14 != 1972-11-14
12/11/1972 != 11/12/1972
first != one
1st != 1
second != two
21st != 21
twenty-one != 20 1
two million != two billion
2 million != 2
1.5 million != 15 million
$5 != €5
$5 million != £5 million
50% != $50
50% != 50°
5 °C != 5 °F
5 dollars != 5 euros
10 000 != 1 000
12, 345 != 12345
12 345 6 != 123456
1,5 != 15
1,5 != 1.5
3.14 != 314
3.14 != 3,14
-5 != 5
−5 != 5
1-5 != 15
1990–1995 != 1990
1990-1995 != 1990, 1995
1990–1995 != 1995–1990
1-2 != 1/2
10:30 != 10.30
10:30 != 1030
10² != 102
1½ != 11/2
CO2 != CO
m² != m
C++ != C
C++ != C+
C# != C
F# != F
A+ != A
18+ != 18
<5 != 5
~5 != 5
≤5 != <5
<=5 != <5
5 km != 5 miles
5 km != 5 cm
5m != 5 km
60 km/h != 60 km
44 BC != 44 AD
44 BC != 44
5 am != 5 pm
J. K. Rowling != J. R. Rowling
JK Rowling != Rowling
George W. Bush != George H. W. Bush
St. Louis != Saint Louis
Henry VIII != Henry VII
Apollo XI != Apollo 11
Louis XIV != Louis 14
Vitamin A deficiency != Vitamin deficiency
Vitamin A != Vitamin
Plan A != Plan
The A-Team != Team
An-225 != 225
No one != No. 1
No one != Number one
yes != no
no != none
Davis Jr. != Davis Sr.
Mulholland Dr. != Mulholland Doctor
May != may 5
мой != мои
हिन्दी != हुन्द\u0947
がく != かく
😀 != 😁
A != the
!!! != ?
AT&T != AT
Guns N' Roses != Guns Roses
Dvořák != Dvorsky
Romeo and Juliet != Romeo and Julia
3.10 != 3.1
007 != 7
will.i.am != William
6'5" != 65
6'5" != 6 feet 6 inches
The The != The
The The != ---
1.0.1 != 1.0
iPhone 5 != iPhone 5s
90s != 90
1960s != 1960
United States != United State
New York != New Yorks
Titan IIIE != Titan IIIC
0,5 != 5
five hundred != 5 100
two hundred != 2 00
nineteen eighty four != 1980 4
x^2 != x^3
2^10 != 210
5+ != 5
±5 != 5
1,000 != 1.000
Ke$ha != Keha Sebert
"""


def pairs(block: str, sign: str) -> list[tuple[str, str]]:
    lines = [line.split(f" {sign} ") for line in block.strip().splitlines()]
    return [pair for line in lines for pair in itertools.combinations(line, 2)]


@pytest.mark.parametrize(("a", "b"), pairs(SAME, "=="))
def test_spellings_of_one_answer(a: str, b: str) -> None:
    for said, gold in ((a, b), (b, a)):
        grade = grade_qa(f"<answer>{said}</answer>", gold)
        assert grade.correct is True, (normalise(a), normalise(b))


@pytest.mark.parametrize(("a", "b"), pairs(DIFFERENT, "!="))
def test_near_misses(a: str, b: str) -> None:
    for said, gold in ((a, b), (b, a)):
        grade = grade_qa(f"<answer>{said}</answer>", gold)
        assert grade.correct is False, (normalise(a), normalise(b))


def test_the_shared_cases() -> None:
    path = SHARED / "cases" / "qa_grading.jsonl"
    if not path.exists():
        pytest.skip("the folder of shared cases is not here")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    wrong = [
        r for r in rows if grade_qa(r["pred"], r["gold"]).correct is not bool(r["expected_em"])
    ]
    assert not [row for row in wrong if not row["policy"]], wrong
    assert not wrong


@pytest.mark.parametrize(
    ("response", "correct", "status"),
    [
        ("<answer>Paris</answer>", True, "ok"),
        ("<answer>Rome</answer> no <answer>Paris</answer>", True, "ok"),
        ("<answer>Paris</answer> no <answer>Rome</answer>", False, "ok"),
        ("<answer>Paris</answer> <answer>Ro", False, "truncated"),
        ("<think><answer>Rome</answer></think> Paris", True, "ok"),
        ("<ANSWER>paris</ANSWER>", True, "ok"),
        ("<answer></answer>", False, "no_answer"),
        ("", False, "no_answer"),
        ("  ", False, "no_answer"),
        ("I think it is Paris", False, "ok"),
        ("Paris " * 1000, False, "limit"),
    ],
)
def test_extraction_and_status(response: str, correct: bool, status: str) -> None:
    grade = grade_qa(response, ["Paris"])
    assert (grade.correct, grade.status, grade.grader) == (correct, status, "qa-2")


@pytest.mark.parametrize("golds", [[], "", ["Paris", " "]])
def test_an_empty_gold_is_nobodys_fault(golds: str | list[str]) -> None:
    assert grade_qa("Rome", golds).correct is None


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip() != ""))
@settings(deadline=None)
def test_every_text_equals_itself_whatever_the_space_around_it(text: str) -> None:
    if "</think>" in text or "<answer" in text.lower():
        return
    assert grade_qa(f"  {text}\n", [text]).correct is True
    assert normalise(text) != ""


@given(st.text(max_size=200), st.text(min_size=1, max_size=40))
@settings(deadline=None)
def test_any_response_is_graded(response: str, gold: str) -> None:
    assert grade_qa(response, [gold]).correct in (True, False, None)
    assert grade_qa(response, ["no gold is like this one"]).correct is False


@given(st.integers(-10_000, 10_000), st.integers(-10_000, 10_000))
@settings(deadline=None)
def test_numbers_equal_only_themselves(a: int, b: int) -> None:
    assert grade_qa(f"{a:,}", [str(b)]).correct is (a == b)
    assert grade_qa(f"{a / 100}", [f"{b / 100}"]).correct is (a == b)
