"""The words of tinyworld: names of its entities, sentences of its passages, phrasings of questions.

All places are invented, so that no model knows them. A change here changes the data set.
"""

from __future__ import annotations

Parts = tuple[tuple[str, ...], tuple[str, ...]]
"""Beginnings and endings; a name is one of each."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PEOPLE: Parts = (
    _words("""
    Ada Agnes Aldo Alma Amina Anselm Arno Asta Beata Bela Bruno Carla Cecil Clara Conrad Dagmar
    Dario Delia Edgar Elias Elsa Emeka Enid Erik Esther Farid Felix Fiona Flora Frida Georg Gilda
    Greta Gustav Hanna Harald Hedda Helga Hilda Idris Ilse Imre Irena Ivo Jonas Josef Judit Kamal
    Karin Klara Lars Leila Leon Linus Livia Lorenz Lucia Magda Malik Marta Matteo Milan Mira Moritz
    Nadia Nestor Nils Nora Olga Oskar Otto Paula Petra Rafael Rosa Selma Simon Sofia Stefan Tamar
    Tilda Timo Ursula Vera Viktor Wanda Xenia Yusuf Zelda Zoltan"""),
    _words("""
    Abelson Adair Aldrin Amadi Ankers Arkwell Ashdown Bakkal Balfour Barrow Basari Beckwith Belmonte
    Bergstrom Bexley Birkett Blomqvist Bodnar Bracewell Brandt Brisbois Calloway Carrow Castellan
    Cheval Cordell Corvin Crane Dahlgren Danvers Darby Delacour Demir Draycott Dunmore Edevane
    Ekholm Ellery Endicott Eszter Fairfax Falkner Farkas Fenwick Ferrant Fitzroy Forsell Gallagher
    Garrick Gentile Glover Godwin Granger Grayling Haddad Halloran Hargreave Harlow Hartmann Hedlund
    Herrick Hollis Horvath Ibarra Inglis Ivers Jansson Jessop Kaminski Keating Kellner Kendrick
    Kilbride Kovacs Kramer Lachlan Langley Larkin Lazarov Ledger Lindqvist Lockhart Lombard
    Ludlow Lysander Madaki Mallory Mancini Marchetti Marlow Maddox Mercer Merrick Molnar Montague
    Mulgrew Nagy Nakano Navarro Nordahl Norwood Oakley Okafor Oldfield Orlov Osborne Paget Palfrey
    Pascoe Pavlov Pelham Penrose Pickering Quayle Quilter Radley Ransome Redgrave Renshaw Rinaldi
    Rosen Rowntree Ruskin Sallow Sandoval Saxby Selwyn Shaw Silva Sorrell Stanhope Strand Sutter
    Tanaka Tarrant Thackeray Tolland Trevelyan Tremaine Ulrich Underhill Valente Vance Varga
    Vaughan Verrall Wadham Wakefield Warwick Weller Whitlock Wolfram Wyndham Yardley Yates Zabala
    Zeller"""),
)
COUNTRY: Parts = (
    _words("""
    Ardan Bresk Corval Drenn Estor Falk Galdar Hestr Ilvar Jorv Keld Lorn Merrov Nostr Ordal Prask
    Rhond Sarv Tolv Ulmar"""),
    _words("ia ovia una mark or enia"),
)
RIVER: Parts = (
    _words("Bru Cal Dra Eb Fal Gar Hal Is Jem Kor Lam Mur Nar Or Pel Rus Sal Tes Vil Wen"),
    _words("ra na de ven sk min tho quel"),
)
TOWN: Parts = (
    _words("""
    Alver Anst Bal Birn Brisk Cald Corr Crint Dels Dorn Drev Elb Esk Fenn Ferr Fyld Gals Gorm Grev
    Hesk Holv Ibb Ister Jern Kest Kolm Larn Lusk Mald Merv Molt Nant Norv Ost Oxer Pell Prin Quar
    Rald Resk Sker Sund Tarn Thrap Torv Ulv Varn Velm Wesk Yarl"""),
    _words("ford mouth wick stead holm bury haven ley mere thorpe gate dale"),
)
CURRENCY: Parts = (_words("dor tal kes bru zin mur pol gan"), _words("rin ven ket lo dar"))
LANGUAGE: Parts = (_words("Hal Ves Tor Nim Quo Ser Lad Yar"), _words("ish ic ari ovan ulu"))
MOUNT: Parts = (
    _words("Agra Bor Crim Dun Eld Fro Grim Hurn Ish Jarl"),
    _words("hold nor dahl gar spire mund rick tor vik wen"),
)
BOOK: Parts = (
    _words("""
    Amber Ancient Bitter Blind Borrowed Broken Burning Crooked Distant Drowned Empty Faithful Fallen
    Forgotten Frozen Gentle Gilded Ochre Hidden Hollow Hungry Idle Iron Last Lonely Lost Narrow
    Painted Pale Patient Quiet Restless Scarlet Second Salted Severed Silent Silver Sleeping Stolen
    Stubborn Sunken Unfinished Velvet Wandering Winter"""),
    _words("""
    Almanac Apprentice Archive Bell Bridge Carnival Cartographer Clock Compass Corridor Dictionary
    Echo Ferry Fountain Granary Glacier Harbour Harvest Horizon Inheritance Island Journey Kingdom
    Ladder Lantern Letter Lighthouse Locksmith Machine Mirror Monsoon Observatory Orchard Orchestra
    Pilgrim Promise Quarry Reckoning Saddle Season Shepherd Shore Sparrow Staircase Stranger Tailor
    Theatre Tide Verdict Vineyard Voyage Watchman Well Window"""),
)
PAINTING: Parts = (
    _words("""
    Baker Boy Child Clerk Dancer Doctor Fisherman Gardener Girl Hunter Judge Mason Miner Monk Mother
    Nurse Piper Potter Queen Sailor Singer Smith Soldier Student Weaver Widow Woman"""),
    _words("""
    Accordion Apple Basket Book Candle Cat Coin Drum Falcon Fan Flute Globe Goose Hammer Hat Key
    Kite Knife Ladle Lily Map Mask Oar Parrot Pear Rope Rose Scarf Shell Spade Violin Wheel"""),
)
TRADES = {
    "Foundry": "cast bells", "Glassworks": "window glass", "Looms": "weaving looms",
    "Shipyard": "river barges", "Brewery": "dark beer", "Carriages": "railway carriages",
    "Ceramics": "stoneware", "Chemicals": "dyes", "Clocks": "clocks", "Confectionery": "sweets",
    "Engines": "steam engines", "Instruments": "telescopes", "Papers": "writing paper",
    "Pianos": "pianos", "Salt": "table salt", "Textiles": "linen", "Tools": "hand tools",
    "Tyres": "bicycle tyres",
}  # fmt: skip
PRESSES = {"Press": "books", "Editions": "books and maps"}
SCHOOLS = ("College", "Academy", "Institute", "Seminary")
MUSEUMS = ("Museum", "Gallery", "Collection")
KNOWN_FOR = (
    "its salt market", "its stone arches", "a cheese fair", "its violin makers", "a winter fair",
    "its tile kilns", "its plum orchards", "a clock tower", "its lace", "an old observatory",
    "its ferry races", "its honey", "a walled harbour", "its silver mines", "a puppet theatre",
)  # fmt: skip
# trade of a person → (how the passages tell it, first and last year of birth)
PROFESSIONS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "scholar": (("a scholar", "a grammarian", "an astronomer", "a botanist"), 1755, 1795),
    "merchant": (("a merchant", "an inventor", "an industrialist", "an engineer"), 1770, 1835),
    "architect": (("an architect",), 1790, 1845),
    "politician": (("a politician", "a lawyer and politician", "a magistrate"), 1800, 1880),
    "writer": (("a novelist", "a poet and novelist", "a playwright", "an essayist"), 1860, 1920),
    "painter": (("a painter", "a painter and engraver", "a portraitist"), 1870, 1920),
}

# kind → fact that a passage tells in a sentence of its own → phrasings. "name" opens the passage;
# a sentence on a fact that the entity lacks is left out.
SENTENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "country": {
        "name": (
            "{name} is a country whose capital is {capital}.",
            "{name} is a state governed from its capital, {capital}.",
        ),
        "language": (
            "Its people speak {language} and pay in the {currency}.",
            "The official language is {language}; the currency is the {currency}.",
        ),
        "since": (
            "It has been independent since {since}.",
            "Independence was declared in {since}.",
        ),
    },
    "river": {
        "name": (
            "{Label} is a river of {country}, {length} kilometres long.",
            "{Label} runs for {length} kilometres through {country}.",
        ),
        "source": ("Its source is on {source}.", "It rises on the slopes of {source}."),
    },
    "town": {
        "name": (
            "{name} is a town in {country} on the banks of {river}.",
            "{name}, a town of {country}, stands on {river}.",
            "The town of {name} lies on {river} in {country}.",
        ),
        "population": (
            "Founded in {founded}, it has {population} inhabitants and is known for {known}.",
            "It dates from {founded}, counts {population} residents and is visited for {known}.",
            "Settlers founded it in {founded}; today {population} people live there, and {known} "
            "made it famous.",
        ),
        "mayor": ("Its first mayor was {mayor}.", "{mayor} became the first mayor of the town."),
    },
    "person": {
        "name": (
            "{name} ({born}–{died}) was {profession} born in {birthplace}.",
            "{name} was {profession}, born in {born} in {birthplace}, who died in {died}.",
            "Born in {birthplace} in {born}, {name} was {profession} and died in {died}.",
            "{name} ({born}–{died}), {profession}, was a native of {birthplace}.",
        ),
        "school": (
            "{surname} attended {school}.",
            "{surname} was educated at {school}.",
            "After years at {school}, {surname} travelled widely.",
        ),
        "teacher": (
            "{surname} was a pupil of {teacher}.",
            "{surname} learned the profession from {teacher}.",
            "As a young adult {surname} was taught by {teacher}.",
        ),
    },
    "company": {
        "name": (
            "{name} is a company based in {seat} that sells {trade}.",
            "{name}, with headquarters in {seat}, is a maker of {trade}.",
            "From its offices in {seat}, {name} trades in {trade}.",
        ),
        "founder": (
            "It was founded in {founded} by {founder}.",
            "{founder} started the firm in {founded}.",
            "The business was established by {founder} in {founded}.",
        ),
    },
    "school": {
        "name": (
            "{name} is a school in {town}.",
            "{name} is a place of learning in {town}.",
        ),
        "founder": (
            "{founder} founded it in {founded}.",
            "It was established in {founded} by {founder}.",
        ),
    },
    "museum": {
        "name": (
            "{Label} is an art museum in {town}.",
            "{Label}, in {town}, shows paintings and prints.",
        ),
        "architect": (
            "The building, opened in {opened}, was designed by {architect}.",
            "{architect} drew the plans of the house, which opened its doors in {opened}.",
        ),
    },
    "book": {
        "name": (
            "{name} is a book by {author}, published in {published} by {publisher}.",
            "{name}, written by {author}, was brought out by {publisher} in {published}.",
            "{publisher} published {name}, a work of {author}, in {published}.",
        ),
    },
    "painting": {
        "name": (
            "{name} is an oil painting made by {painter} in {painted}. It hangs in {museum}.",
            "{painter} painted {name} in {painted}; the canvas belongs to {museum}.",
            "{name}, a picture of {painted} by {painter}, is kept in {museum}.",
        ),
    },
}

# (kind, relation) → (questions after it, noun phrases for its value; none where that is no entity).
# A capital is told and never asked for: it is the country of a town the other way round.
ASKED: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("country", "currency"): (
        ("What is the currency of {x}?", "What do people pay with in {x}?"), ()),
    ("country", "language"): (("Which language is spoken in {x}?",), ()),
    ("country", "since"): (("In which year did {x} become independent?",), ()),
    ("river", "country"): (
        ("Through which country does {x} flow?",), ("the country through which {x} flows",)),
    ("river", "source"): (
        ("On which mountain does {x} rise?", "On which mountain is the source of {x}?"), ()),
    ("river", "length"): (("How long, in kilometres, is {x}?",), ()),
    ("town", "country"): (("In which country is {x}?",), ("the country in which {x} lies",)),
    ("town", "river"): (
        ("On which river does {x} stand?",), ("the river on which {x} stands",)),
    ("town", "founded"): (("In which year was {x} founded?",), ()),
    ("town", "population"): (
        ("How many inhabitants does {x} have?", "What is the population of {x}?"), ()),
    ("town", "mayor"): (("Who was the first mayor of {x}?",), ("the first mayor of {x}",)),
    ("person", "born"): (("In which year was {x} born?", "What is the birth year of {x}?"), ()),
    ("person", "died"): (("In which year did {x} die?", "What is the year of death of {x}?"), ()),
    ("person", "birthplace"): (
        ("In which town was {x} born?", "What is the birthplace of {x}?"),
        ("the town where {x} was born", "the birthplace of {x}")),
    ("person", "school"): (
        ("Which school did {x} attend?", "At which school was {x} educated?"),
        ("the school that {x} attended", "the school where {x} was educated")),
    ("person", "teacher"): (
        ("Who taught {x}?", "Who was the teacher of {x}?"),
        ("the teacher of {x}", "the person who taught {x}")),
    ("company", "founder"): (
        ("Who founded {x}?", "Who was the founder of {x}?"),
        ("the founder of {x}", "the person who founded {x}")),
    ("company", "founded"): (("In which year was {x} founded?", "When was {x} established?"), ()),
    ("company", "seat"): (
        ("In which town is {x} based?", "Which town is home to the headquarters of {x}?"),
        ("the town where {x} is based",)),
    ("school", "founder"): (("Who founded {x}?",), ("the founder of {x}",)),
    ("school", "founded"): (("In which year was {x} founded?",), ()),
    ("school", "town"): (("In which town is {x}?",), ("the town that is home to {x}",)),
    ("museum", "architect"): (
        ("Who designed the building of {x}?", "Who was the architect of {x}?"),
        ("the architect of {x}",)),
    ("museum", "opened"): (("In which year did {x} open?",), ()),
    ("museum", "town"): (("In which town is {x}?",), ("the town that is home to {x}",)),
    ("book", "author"): (
        ("Who wrote {x}?", "Who is the author of {x}?"),
        ("the author of {x}", "the person who wrote {x}")),
    ("book", "published"): (("In which year was {x} published?", "When did {x} appear?"), ()),
    ("book", "publisher"): (
        ("Which company published {x}?", "Who was the publisher of {x}?"),
        ("the company that published {x}", "the publisher of {x}")),
    ("painting", "painter"): (
        ("Who painted {x}?",), ("the painter of {x}", "the person who painted {x}")),
    ("painting", "painted"): (("In which year was {x} painted?",), ()),
    ("painting", "museum"): (
        ("In which museum does {x} hang?", "Which museum owns {x}?"),
        ("the museum that owns {x}",)),
}  # fmt: skip
UNITS = {"length": ("kilometres", "km"), "population": ("inhabitants", "people")}
"""What may follow a number in an answer."""
