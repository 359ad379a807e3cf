"""A package of verifiers v1 with an Env of its own, whose `run` is the user and gives the reward."""

import verifiers.v1 as vf


class Data(vf.TaskData):
    number: int


class Guess(vf.Task[Data]):
    @vf.metric
    async def turns(self, trace) -> float:
        return float(trace.num_turns)


class EnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=4)


class GuessEnv(vf.Env[EnvConfig]):
    async def run(self, task, agents):
        found = False
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn(None if task.data.prompt else "Guess it.")
            while not segment.terminated:
                if segment.last_reply == "BREAK":
                    raise OSError("the dice are gone")
                found = segment.last_reply == str(task.data.number)
                if found:
                    break
                segment = await interaction.turn([{"role": "user", "content": "Wrong."}])
        interaction.trace.record_reward("found", float(found), 2.0)
        if self.config.taskset.again:
            await agents.player.run(task)

    async def finalize(self, task, episode):
        (trace,) = episode.traces
        trace.record_metric("ended", float(trace.stop_condition == "user_closed" and trace.agent.name == "player"))


class Config(vf.TasksetConfig):
    again: bool = False


class Guesses(vf.Taskset[Guess, Config]):
    INFINITE = True

    def load(self):
        number = 0
        while True:
            number += 1
            prompt = None if number == 3 else "Guess my number."
            yield Guess(Data(prompt=prompt, system_prompt="Say one.", number=number), self.config.task)


__all__ = ["GuessEnv", "Guesses"]
