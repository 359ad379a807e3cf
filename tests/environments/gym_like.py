"""Text worlds shaped as other packages' are."""

import random
import time


class Number:
    """As Gymnasium: five values; draws from Python's shared random numbers, as many games do."""

    def __init__(self, most=20):
        self.most = most

    def reset(self, seed=None):
        self.number, self.noise = random.randint(1, self.most), []
        return f"Guess my number, 1 to {self.most}.", {}

    def step(self, action):
        self.noise.append(random.random())
        guess = int(action)
        said = "Right." if guess == self.number else "higher" if guess < self.number else "lower"
        return f"{said} {self.noise[-1]:.6f}", float(guess == self.number), guess == self.number, False, {}


class Short(Number):
    """As older ones: four values, and a reset without a seed."""

    def reset(self):
        return super().reset()[0]

    def step(self, action):
        said, reward, done, _, info = super().step(action)
        return said, reward, done, info


class Wrapped:
    """As wrappers that forward attributes: pickle brings it back without the game that it asks for."""

    def __init__(self):
        self.env = Number()

    def __getattr__(self, name):
        return getattr(self.env, name)


def make(name, **keys):
    """What such packages make a world by its id with."""
    if name != "Number-v0":
        raise ValueError(f"{name} is not registered")
    return Number(**keys)


class Steady(Number):
    """Has the number 7; hangs at 0."""

    def reset(self, seed=None):
        said, info = super().reset(seed)
        self.number = 7
        return said, info

    def step(self, action):
        if action == "0":
            time.sleep(4)
        return super().step(action)


class Rows:
    """As skyrl-gym's: made with the row's columns as `extras`, begun by `init`, and a step is a mapping."""

    def __init__(self, env_config, extras):
        self.truth, self.most, self.tries = extras["reward_spec"]["ground_truth"], extras.get("max_turns", 2), 0
        self.hint = env_config.get("hint")

    def init(self, prompt):
        return [*prompt, {"role": "user", "content": self.hint}] if self.hint else prompt, {}

    def step(self, action):
        self.tries += 1
        right, over = action == self.truth, self.tries >= self.most
        said = [] if right or over else [{"role": "user", "content": "Again."}]
        return {"observations": said, "reward": 1.0 if right else 0.1, "done": right or over, "metadata": {}}

    def close(self):
        pass


class Rewriting(Rows):
    def init(self, prompt):
        return [{"role": "user", "content": "Other words."}], {}
