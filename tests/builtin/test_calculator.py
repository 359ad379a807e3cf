"""The calculator: right where it answers, and nothing but arithmetic."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.builtin.encyclopedia import calculator


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 + 2 * 3", "7"),
        ("(12 + 30) * 4", "168"),
        ("-3 + +5", "2"),
        ("7 / 2", "3.5"),
        ("8 / 2", "4"),
        ("7 // 2", "3"),
        ("7 % 4", "3"),
        ("2 ** 10", "1024"),
        ("2 ** -1", "0.5"),
        ("1.5e3", "1500"),
        ("10 / 3", "3.333333333"),
        (" 42 ", "42"),
        ("0.1 + 0.2", "0.3"),
        ("123456789 * 987654321", "121932631112635269"),
    ],
)
def test_an_expression_gives_its_value(expression, result):
    assert calculator(expression) == result


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("9 ** 9 ** 9", "exponent"),
        ("2 ** 65", "exponent"),
        ("10 ** 60", "exceeds"),
        ("9" * 150 + " * 2", "exceeds"),
        ("1e999", "exceeds"),
        ("(-8) ** 0.5", "not a real number"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("__import__('os').system('true')", "Call is not allowed"),
        ("(1).real", "Attribute is not allowed"),
        ("x", "Name is not allowed"),
        ("True", "Constant is not allowed"),
        ("'a' * 9", "Constant is not allowed"),
        ("1j", "Constant is not allowed"),
        ("[1, 2]", "List is not allowed"),
        ("lambda: 1", "Lambda is not allowed"),
        ("1 << 999999999", "BinOp is not allowed"),
        ("1 < 2", "Compare is not allowed"),
        ("1 if 1 else 2", "IfExp is not allowed"),
        ("f'{1}'", "JoinedStr is not allowed"),
        ("(" * 90 + "1" + ")" * 90 + "+", "not an arithmetic expression"),
        ("-" * 150 + "1", "nested deeper"),
        ("1 +" * 60 + "1", "nested deeper"),
        ("1" * 300, "characters"),
        ("", "not an arithmetic expression"),
        ("1; 2", "not an arithmetic expression"),
        ("1\x00", "not an arithmetic expression"),
    ],
)
def test_anything_else_is_refused_at_once_with_a_reason(attack, reason):
    started = time.perf_counter()
    with pytest.raises(ValueError, match=reason):
        calculator(attack)
    assert time.perf_counter() - started < 0.5


@given(st.text(max_size=250))
def test_no_text_ends_in_anything_but_a_number_or_a_value_error(text):
    try:
        result = calculator(text)
    except ValueError:
        return
    float(result)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.sampled_from("+-*"))
def test_integer_results_are_exact(left, right, operator):
    exact = {"+": left + right, "-": left - right, "*": left * right}[operator]
    assert Fraction(calculator(f"({left}) {operator} ({right})")) == exact
