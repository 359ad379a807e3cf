"""The built-in encyclopedia as a class for TRL's `environment_factory`."""

from rlf.builtin.encyclopedia import calculator, search


class SearchEnv:
    def reset(self, **kwargs) -> None:
        self.answer = kwargs["answer"]
        self.found = ""

    def search(self, query: str) -> str:
        """
        Find passages about a person, a town, a river or a company.

        Args:
            query: Words of the passage to find.

        Returns:
            The passages.
        """
        self.found += search(query)
        return search(query)

    def calculator(self, expression: str) -> str:
        """
        Work out an expression.

        Args:
            expression: Numbers with + - * / and brackets.

        Returns:
            The value.
        """
        self.found += str(calculator(expression))
        return str(calculator(expression))

    def get_reward(self) -> float:
        return float(str(self.answer) in self.found)
