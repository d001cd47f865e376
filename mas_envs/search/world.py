"""How tinyworld is made: entities and their facts from a seed, and the passages that tell them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeVar

from mas_envs.search import names
from retrievers import Passage

T = TypeVar("T")
SIZES = {
    "country": 30, "river": 90, "town": 420, "person": 1320, "company": 260, "school": 120,
    "museum": 80, "book": 420, "painting": 260,
}  # fmt: skip
_LIVES = {
    "scholar": 160, "merchant": 240, "architect": 80, "politician": 240, "writer": 360,
    "painter": 240,
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Entity:
    """One thing of the world, told in one passage of the same id."""

    kind: str
    id: str
    name: str
    facts: dict[str, Fact] = field(default_factory=dict, repr=False)  # they lead to all others
    """Relation → its one value."""
    colour: dict[str, str] = field(default_factory=dict)
    """What the passage tells besides; no question asks for it."""

    @property
    def label(self) -> str:
        """The name as a sentence has it."""
        return f"the {self.name}" if self.kind in ("river", "museum") else self.name


Fact = Entity | int | str
"""The value of a fact."""


class World(NamedTuple):
    """Everything made from one seed; `entities` and `passages` are in the same order."""

    entities: list[Entity]
    passages: list[Passage]
    words: dict[str, str]
    """Entity id → the words of its passage."""
    naming: dict[str, list[str]]
    """Entity id → the ids of all passages that name it."""


def words_of(text: str) -> str:
    """Lower-case words, each between spaces; "12,400" is one word."""
    words = re.findall(r"[^\W_]+", text.lower().replace(",", ""))
    return f" {' '.join(words)} "


@lru_cache(maxsize=4)
def make_world(seed: int) -> World:
    """World `seed`, a whole number of at least 0; the same in every process. Not to be changed."""
    rng = random.Random(4 * seed)
    towns, lands = _lands(rng)
    people = _people(rng, towns)
    schools = _houses(rng, "school", names.SCHOOLS, towns, people["scholar"])
    companies = _companies(rng, towns, people["merchant"])
    museums = _houses(rng, "museum", names.MUSEUMS, towns, people["architect"])
    _schooling(rng, people, schools)
    for town, mayor in zip(shuffled(rng, towns), people["politician"], strict=False):
        town.facts["mayor"] = mayor
    works = _works(rng, people, companies, museums)
    everyone = [person for group in people.values() for person in group]
    entities = [*lands, *towns, *everyone, *companies, *schools, *museums, *works]
    told = [_told(rng, entity) for entity in entities]
    naming = {entity.id: [entity.id] for entity in entities}
    for entity in entities:
        for value in entity.facts.values():
            if isinstance(value, Entity):
                naming[value.id].append(entity.id)
    return World(entities, told, {p.id: words_of(f"{p.title} {p.text}") for p in told}, naming)


def _lands(rng: random.Random) -> tuple[list[Entity], list[Entity]]:
    """Towns; countries and rivers. Town and river i lie in country i modulo their number."""
    count = SIZES["country"]
    countries = _made("country", _joined(rng, names.COUNTRY, count))
    rivers = _made("river", [f"River {n}" for n in _joined(rng, names.RIVER, SIZES["river"])])
    mounts = _joined(rng, names.MOUNT, len(rivers))
    for place, (river, mount) in enumerate(zip(rivers, mounts, strict=True)):
        length = between(rng, 40, 990)
        river.facts = {"country": countries[place % count], "source": f"Mount {mount}"}
        river.facts["length"] = length
    # A fifth of the place names is borne by two towns, an upper and a lower one.
    bare = _joined(rng, names.TOWN, SIZES["town"] * 5 // 6)
    pairs = bare[: SIZES["town"] - len(bare)]
    called = [f"{side} {name}" for name in pairs for side in ("Upper", "Lower")]
    towns = _made("town", shuffled(rng, [*called, *bare[len(pairs) :]]))
    for place, town in enumerate(towns):
        town.facts = {
            "country": countries[place % count],
            "river": pick(rng, rivers[place % count :: count]),
            "founded": between(rng, 850, 1740),
            "population": f"{between(rng, 11, 899) * 100 + between(rng, 0, 99):,}",
        }
        town.colour = {"known": pick(rng, names.KNOWN_FOR)}
    currencies = _joined(rng, names.CURRENCY, count)
    languages = _joined(rng, names.LANGUAGE, count)
    for place, country in enumerate(countries):
        country.facts = {"capital": towns[place], "currency": currencies[place]}
        country.facts["language"] = languages[place]
        country.facts["since"] = between(rng, 1745, 1990)
    return towns, [*countries, *rivers]


def _people(rng: random.Random, towns: list[Entity]) -> dict[str, list[Entity]]:
    """People by profession, all dead; every one works from 22 to 45 and dies later."""
    called = _pairs(rng, *names.PEOPLE, SIZES["person"])
    people = iter(_made("person", [f"{first} {last}" for first, last in called]))
    groups: dict[str, list[Entity]] = {}
    for profession, (told, earliest, latest) in names.PROFESSIONS.items():
        groups[profession] = [next(people) for _ in range(_LIVES[profession])]
        for person in groups[profession]:
            born = between(rng, earliest, latest)
            person.facts = {"born": born, "died": born + between(rng, 48, 88)}
            person.facts["birthplace"] = pick(rng, towns)
            surname = person.name.split()[1]
            person.colour = {"profession": pick(rng, told), "surname": surname}
    return groups


def _schooling(rng: random.Random, people: dict[str, list[Entity]], schools: list[Entity]) -> None:
    """Schools for those born when all schools exist; teachers 18 to 45 years older."""
    for group in people.values():
        for person in group:
            born = _year(person, "born")
            if born >= 1830:
                person.facts["school"] = pick(rng, schools)
            for _ in range(6):
                teacher = pick(rng, group)
                older = born - _year(teacher, "born")
                if 18 <= older <= 45 and _year(teacher, "died") >= born + 20:
                    person.facts["teacher"] = teacher
                    break


def _houses(
    rng: random.Random,
    kind: str,
    sorts: tuple[str, ...],
    towns: list[Entity],
    makers: list[Entity],
) -> list[Entity]:
    """Schools or museums, each with its town, its year and who founded or designed it."""
    maker, year = ("founder", "founded") if kind == "school" else ("architect", "opened")
    called = _pairs(rng, names.PEOPLE[1], sorts, SIZES[kind])
    houses = _made(kind, [f"{surname} {sort}" for surname, sort in called])
    for house in houses:
        who = pick(rng, makers)
        house.facts = {"town": pick(rng, towns), maker: who}
        house.facts[year] = _year(who, "born") + between(rng, 25, 45)
    return houses


def _companies(rng: random.Random, towns: list[Entity], founders: list[Entity]) -> list[Entity]:
    sorts = names.TRADES | names.PRESSES
    presses = _pairs(rng, names.PEOPLE[1], tuple(names.PRESSES), SIZES["company"] // 4)
    called = _pairs(rng, names.PEOPLE[1], tuple(names.TRADES), SIZES["company"] - len(presses))
    companies = _made("company", [f"{surname} {sort}" for surname, sort in [*presses, *called]])
    for company in companies:
        who = pick(rng, founders)
        company.facts = {"seat": pick(rng, towns), "founder": who}
        company.facts["founded"] = _year(who, "born") + between(rng, 22, 42)
        company.colour = {"trade": sorts[company.name.split()[1]]}
    return companies


def _works(
    rng: random.Random,
    people: dict[str, list[Entity]],
    companies: list[Entity],
    museums: list[Entity],
) -> list[Entity]:
    """Books (all writers are younger than the presses) and paintings."""
    presses = [company for company in companies if company.name.split()[1] in names.PRESSES]
    titles = _pairs(rng, *names.BOOK, SIZES["book"])
    books = _made("book", [f"The {first} {second}" for first, second in titles])
    for book in books:
        author = pick(rng, people["writer"])
        year = _year(author, "born") + between(rng, 25, 45)
        book.facts = {"author": author, "published": year, "publisher": pick(rng, presses)}
    subjects = _pairs(rng, *names.PAINTING, SIZES["painting"])
    paintings = _made(
        "painting",
        [f"{who} with {'an' if what[0] in 'AO' else 'a'} {what}" for who, what in subjects],
    )
    for painting in paintings:
        painter = pick(rng, people["painter"])
        year = _year(painter, "born") + between(rng, 22, 45)
        painting.facts = {"painter": painter, "painted": year, "museum": pick(rng, museums)}
    return [*books, *paintings]


def _told(rng: random.Random, entity: Entity) -> Passage:
    """The passage of an entity: the opening, then the other sentences in any order."""
    known = {
        relation: value.label if isinstance(value, Entity) else str(value)
        for relation, value in entity.facts.items()
    }
    label = entity.label[0].upper() + entity.label[1:]
    known |= {"name": entity.name, "Label": label, **entity.colour}
    first, *others = [
        pick(rng, phrasings).format_map(known)
        for relation, phrasings in names.SENTENCES[entity.kind].items()
        if relation in known
    ]
    return Passage(entity.id, entity.name, " ".join([first, *shuffled(rng, others)]))


def _made(kind: str, called: Iterable[str]) -> list[Entity]:
    return [Entity(kind, f"{kind}-{place:04d}", name) for place, name in enumerate(called)]


def _year(entity: Entity, relation: str) -> int:
    year = entity.facts[relation]
    assert isinstance(year, int)
    return year


# Only `Random.random` is promised to give the same numbers in every Python release.
def between(rng: random.Random, low: int, high: int) -> int:
    """An integer from `low` to `high`, both included."""
    return low + int(rng.random() * (high - low + 1))


def pick(rng: random.Random, choices: Sequence[T]) -> T:
    """One of `choices`."""
    return choices[int(rng.random() * len(choices))]


def shuffled(rng: random.Random, things: Iterable[T]) -> list[T]:
    """`things` in random order."""
    listed = list(things)  # they may draw from `rng` themselves
    return sorted(listed, key=lambda _: rng.random())


def _pairs(
    rng: random.Random, firsts: Sequence[str], seconds: Sequence[str], count: int
) -> list[tuple[str, str]]:
    """`count` different pairs."""
    return shuffled(rng, product(firsts, seconds))[:count]


def _joined(rng: random.Random, parts: names.Parts, count: int) -> list[str]:
    """`count` different names, each a beginning and an ending."""
    return [first + second for first, second in _pairs(rng, *parts, count)]
