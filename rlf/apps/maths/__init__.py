"""The rule `math`: answers that are the same number, expression or set, by math-verify in processes of its own."""
