"""The built-in encyclopedia as classes: for TRL's `environment_factory`, and two more for a mix of worlds."""

from rlf.builtin.encyclopedia import calculator, search, search_shuffled
from rlf.environments import Step


class Encyclopedia:
    search_by = staticmethod(search)

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
        passages = self.search_by(query)
        self.found += passages
        return passages

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


class SearchEnv(Encyclopedia):
    """Pays for results that hold the answer."""

    def get_reward(self) -> float:
        return float(str(self.answer) in self.found)


class LostEnv(SearchEnv):
    """A control: the passages are about others than those that were asked for."""

    search_by = staticmethod(search_shuffled)


class AskedEnv(Encyclopedia):
    """Pays for the answer."""

    def reply(self, text: str) -> Step:
        self.said = text.strip()
        return Step(None, done=True)

    def score(self) -> float:
        return float(getattr(self, "said", "") == str(self.answer))
