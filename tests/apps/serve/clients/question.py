"""A held-out question for which `builtin:tiny` calls its tool at temperature 0 and reads the answer, and the truth."""

PERSON, TOWN = "Mavwis", "Jetbir"
QUESTION = f"In which town was {PERSON} born?"
FACT = f"{PERSON} was born in {TOWN}."
