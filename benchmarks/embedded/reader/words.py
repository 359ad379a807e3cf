"""The words that the reader knows as one token each: what relations, kinds, tools and parameters are named with.

None is tied to another: pretraining draws the relations, kinds and tools again for each row.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KINDS = _words(
    """person town company river country school ship harbour island captain book author library club game valley
    museum painter farm village team player street bridge"""
)
NOUNS = _words(
    """birthplace home employer bank friend teacher seat depot founder chief mayor judge stream canal source mouth
    capital market king hero twin rival builder owner pilot port refuge yard keeper guard beacon reef heir mentor
    doctor tailor office garden tower gate mill inn guide partner brother sister agent patron editor printer sponsor
    donor curator sculptor director league stadium coach mascot summit forest lake chapel baker singer"""
)
VERBS = _words("find get show read look tell ask seek fetch check give list pick open call note")
PARAMETERS = _words("name query key item subject target value who")
WORDS: tuple[str, ...] = tuple(dict.fromkeys([*KINDS, *NOUNS, *VERBS, *PARAMETERS]))
