"""`python openenv_server.py PORT`: a world behind OpenEnv's own server, in an environment that has OpenEnv."""

import sys
import time

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    """Guess the number."""

    guess: int


class Heard(Observation):
    said: str = ""


class Number(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **_):
        self.number = (seed or 6) + 1
        return Heard(said="Guess.", reward=None, done=False)

    def step(self, action, timeout_s=None, **_):
        if action.guess == 1000:
            time.sleep(20)
        if action.guess < 0:
            raise ZeroDivisionError("the world broke")
        right = action.guess == self.number
        said = "Right." if right else "higher" if action.guess < self.number else "lower"
        return Heard(said=said, reward=float(right), done=right)

    @property
    def state(self):
        return State()


app = create_fastapi_app(Number, Guess, Heard, max_concurrent_envs=8)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
