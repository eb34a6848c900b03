"""Kills a short run again and again, and says what it was trained on.

A script: its process imports everything once, then forks a child for every
attempt, which saves the seconds that imports take. It prints one line of JSON.

  python tests/run/kill_loop.py --folder F --cache C --mode async --signal KILL
"""

import argparse
import asyncio
import collections
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import random
import runpy
import signal
import sys
import time
import traceback

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from arl_jax import train as train_lib
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.learner.checkpoint import CheckpointStore
from arl_jax.run import suites
from arl_jax.run.flight_suite import flight_booking_suite
from arl_jax.run.parts import assemble
from arl_jax.run.settings import read_settings
from arl_jax.trajectories import store

_ROOT = pathlib.Path(__file__).parents[2]
# Every so many tasks there is one whose environment never resets.
_BROKEN_EVERY = 11


class UnsafeDesk:
  """Flight booking whose tools take their time, and which breaks at times."""

  def __init__(self, longest, **settings):
    self._inner = FlightBookingEnv(**settings)
    self._longest = longest
    self._random = random.Random(0)

  async def reset(self, task, *, seed):
    if task.seed % _BROKEN_EVERY == 0:
      raise OSError("the desk is closed")
    self._random.seed(seed)
    return await self._inner.reset(task, seed=seed)

  async def step(self, action):
    if self._longest:
      await asyncio.sleep(self._longest * self._random.random())
    return await self._inner.step(action)

  async def score(self):
    return await self._inner.score()


def make_suite(longest, settings):
  """Makes flight booking with other desks."""
  return dataclasses.replace(
    flight_booking_suite(settings),
    make_environment=functools.partial(
      UnsafeDesk,
      longest,
      style=settings.style,
      show_times=settings.show_times,
    ),
  )


def make_config(options):
  get_config = runpy.run_path(str(_ROOT / "configs/flight_booking.py"))
  config = get_config["get_config"]("runlocal")
  with config.unlocked():
    config.learner.num_steps = options.steps
    config.environment.num_train_tasks = 64
    config.warmup.num_steps = 2
    config.evaluation.num_tasks = 1
    config.checkpoint.every = 3
    if options.mode == "async":
      config.rollout.mode = "async"
      config.rollout.max_staleness = 2
      config.rollout.max_concurrent_groups = 4
  return config


def run(config, folder, log):
  """The child: trains to the end, or until it is killed."""
  file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(file, 1)
  os.dup2(file, 2)
  # Which episodes decode together depends on how long tools take, and sums of
  # floats on that; so weights can be equal only where they take no time.
  longest = 0.04 if config.rollout.mode == "async" else 0.0
  make = functools.partial(make_suite, longest)
  kind = suites.SUITES["flight_booking"]._replace(make=make)
  suites.SUITES["flight_booking"] = kind  # type: ignore[index]
  train_lib.train(config, folder, devices=jax.devices()[:1])


def attempt(config, folder, log, *, number, kill_after):
  """Runs a child once; kills it `(phase, seconds)` after something happened.

  Returns:
    Its exit status, and the seconds it took to end after a signal.
  """
  begun = newest(folder)
  child = os.fork()
  if not child:
    try:
      run(config, folder, log)
    except BaseException:
      traceback.print_exc()
      os._exit(1)
    sys.stdout.flush()
    os._exit(0)
  if kill_after is not None:
    phase, seconds = kill_after
    while phase == "training" and newest(folder) == begun:
      pid, status = os.waitpid(child, os.WNOHANG)
      if pid:
        return os.waitstatus_to_exitcode(status), 0.0
      time.sleep(0.005)
    time.sleep(seconds)
    try:
      os.kill(child, number)
    except ProcessLookupError:
      pass
  sent = time.monotonic()
  _, status = os.waitpid(child, 0)
  return os.waitstatus_to_exitcode(status), time.monotonic() - sent


def newest(folder):
  """What changes when a step was stored: the newest file and its time."""
  files = sorted(pathlib.Path(folder).glob("trajectories/step-*.jsonl"))
  try:
    return (files[-1].name, files[-1].stat().st_mtime_ns) if files else None
  except FileNotFoundError:
    return "changing"


def trained(folder):
  """Counts the trained ordinals of a finished run, from what it stored."""
  counts = collections.Counter()
  for _, groups in store.read_groups(pathlib.Path(folder) / "trajectories"):
    counts.update(group.ordinal for group in groups)
  return sorted(counts.elements())


def weights(config, folder):
  """Sums the bytes of the final weights; equal weights have equal sums."""
  parts = assemble(
    read_settings(config),
    saved_tokenizer=pathlib.Path(folder) / "tokenizer",
    devices=jax.devices()[:1],
  )
  with CheckpointStore(f"{folder}/checkpoints", create=False) as checkpoints:
    restored = checkpoints.restore(None, parts.abstract_state())
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(jax.device_get(restored.state.params)):
    digest.update(leaf.tobytes())
  return restored.step, digest.hexdigest()


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--folder", required=True)
  parser.add_argument("--cache", required=True)
  parser.add_argument("--mode", choices=("sync", "async"), required=True)
  parser.add_argument("--signal", choices=("KILL", "TERM"), required=True)
  parser.add_argument("--kills", type=int, default=20)
  parser.add_argument("--steps", type=int, default=40)
  parser.add_argument("--seed", type=int, default=0)
  options = parser.parse_args()
  folder = pathlib.Path(options.folder)
  folder.mkdir(parents=True, exist_ok=True)
  jax.config.update("jax_compilation_cache_dir", options.cache)
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
  jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
  config = make_config(options)
  draw = random.Random(options.seed)
  number = getattr(signal, f"SIG{options.signal}")

  whole, killed = str(folder / "whole"), str(folder / "killed")
  log = str(folder / "log.txt")
  started = time.monotonic()
  code, _ = attempt(config, whole, log, number=number, kill_after=None)
  assert code == 0, pathlib.Path(log).read_text()[-4000:]
  seconds_whole = time.monotonic() - started

  codes, delays = [], []
  for _ in range(options.kills):
    if draw.random() < 0.2:
      when = ("starting", draw.uniform(0, 3.0))
    else:
      when = ("training", draw.uniform(0, 0.5))
    code, delay = attempt(config, killed, log, number=number, kill_after=when)
    codes.append(code)
    delays.append(delay)
  code, _ = attempt(config, killed, log, number=number, kill_after=None)
  assert code == 0, pathlib.Path(log).read_text()[-4000:]
  facts = {
    "codes": codes,
    "delays": delays,
    "seconds_whole": seconds_whole,
    "seconds": time.monotonic() - started,
    "whole": trained(whole),
    "killed": trained(killed),
  }
  facts["weights_whole"] = weights(config, whole)
  facts["weights_killed"] = weights(config, killed)
  print(json.dumps(facts))


if __name__ == "__main__":
  main()
