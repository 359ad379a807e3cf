"""Random names, words, codes and numbers: what copying is learned on. No list of real names is in here."""

from __future__ import annotations

import random
import string


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


COLUMNS = _words(
    """city town country age price color size weight height year month owner author title status type kind code phone
    email street region state area level score rank grade team group class model brand maker material origin language
    currency capital river length width depth speed power capacity stock number total cost rate date day time start end
    floor room building department manager salary role job position office branch supplier customer product category
    genre director publisher format pages rating version license platform port host address species family diet
    population symbol mass orbit element season animal breed sport coach league club points route station line gate
    seat driver engine fuel hotel teacher course subject credits school doctor artist album label museum style period
    mountain lake island bridge tower founder boss partner"""
)
"""Columns that the model sees in pretraining; others are made of random words."""
HELDOUT_COLUMNS = _words(
    """hardness lustre quarry streak queen apiary frames yield payload inclination operator launcher servings spice oven
    chef tonnage harbour skipper flag nib ink luthier varnish strings altitude glacier hut warden allergen sowing frost
    bloom debut encore venue baton dosage vaccine larva nectar gauge rivet turret moat"""
)
"""Columns for evaluation alone: none is in `COLUMNS` or a token of its own."""
TABLES = _words("people towns books items parts orders staff cars songs plants users rooms teams firms films")
_CONSONANTS = _words("b c d f g h j k l m n p q r s t v w x z th st tr br ch sh ck ll nd nt ss")
_VOWELS = _words("a e i o u y ae ea ee ie io ou")
_LETTERS_SHARE = 0.35


def random_word(rng: random.Random) -> str:
    """A lower-case word of two to nine letters: of syllables, or letters drawn alone."""
    if rng.random() < _LETTERS_SHARE:
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 8)))
    word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 3)))
    return word[:9] if rng.random() < 0.5 else (word + rng.choice(_CONSONANTS))[:9]


def random_name(rng: random.Random) -> str:
    """One capitalised word, or two, or one with an initial."""
    name = random_word(rng).capitalize()
    draw = rng.random()
    if draw < 0.45:
        return f"{name} {random_word(rng).capitalize()}"
    if draw < 0.5:
        return f"{rng.choice(string.ascii_uppercase)}. {name}"
    return name


def random_code(rng: random.Random) -> str:
    """Capitals and digits, such as `QX-4471`."""
    letters = "".join(rng.choices(string.ascii_uppercase, k=rng.randint(1, 3)))
    digits = "".join(rng.choices(string.digits, k=rng.randint(2, 5)))
    return letters + rng.choice(["", "-", "-", "_"]) + digits


def random_number(rng: random.Random) -> str:
    """A whole number of one to six digits, or one with a decimal point."""
    number = str(rng.randrange(10 ** rng.randint(1, 6)))
    return f"{number[:4]}.{rng.randrange(100)}" if rng.random() < 0.2 else number


def random_value(rng: random.Random) -> str:
    """A value of a cell."""
    draw = rng.random()
    if draw < 0.4:
        return random_name(rng)
    if draw < 0.6:
        return random_number(rng)
    if draw < 0.75:
        return " ".join(random_word(rng) for _ in range(rng.choice([1, 1, 2])))
    if draw < 0.9:
        return random_code(rng)
    return f"{rng.randint(1800, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def random_column(rng: random.Random) -> str:
    """A listed word, a random one, or two joined by `_`."""
    draw = rng.random()
    if draw < 0.4:
        return rng.choice(COLUMNS)
    if draw < 0.8:
        return random_word(rng)
    return f"{rng.choice(COLUMNS) if rng.random() < 0.5 else random_word(rng)}_{random_word(rng)}"
