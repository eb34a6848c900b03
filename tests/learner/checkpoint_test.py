import errno
import os
import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from arl_jax.learner import sharding
from arl_jax.learner.checkpoint import CheckpointStore
from arl_jax.learner.optimizer import OptimizerConfig, make_optimizer
from arl_jax.learner.state import abstract_state, init_state
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update

EXTRAS = {"cursor": 7, "fingerprint": "abc", "accepted": [1, 2]}
MUON = make_optimizer(OptimizerConfig(name="muon", learning_rate=0.02))


def place(mesh, params):
  return jax.tree.map(
    lambda x: sharding.sharding_for(mesh, ("embed", None), x.shape), params
  )


def learner(num_devices=1, width=8, optimizer=MUON):
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=1, fsdp=-1), jax.devices()[:num_devices]
  )
  values = np.arange(8 * width, dtype=np.float32).reshape(8, width)
  params = {"w": values, "b": values[:2] + 0.5}
  return init_state(params, optimizer, shardings=place(mesh, params))


def files_below(folder, name):
  return sorted(pathlib.Path(folder).glob(f"**/{name}"))


@pytest.fixture
def saved(tmp_path):
  """A folder with the steps 1 and 2 of a small learner."""
  folder = str(tmp_path / "checkpoints")
  with CheckpointStore(folder) as store:
    for step in (1, 2):
      store.save(step, learner(), EXTRAS | {"cursor": step})
      store.wait()
  return folder


@pytest.mark.parametrize("asynchronous", [True, False])
def test_round_trip_with_reference(tmp_path, asynchronous):
  state, reference = learner(), {"w": jnp.ones((8, 8)), "b": jnp.ones((2, 8))}
  expected = jax.device_get(state)
  folder = str(tmp_path / "new" / "checkpoints")
  with CheckpointStore(folder, asynchronous=asynchronous) as store:
    assert store.latest_step() is None
    store.save(3, state, EXTRAS, ref_params=reference)
    # The state is donated right after the save, as training does.
    scaled = jax.jit(
      lambda tree: jax.tree.map(lambda x: x * 0, tree), donate_argnums=0
    )
    target = scaled(state)
    store.wait()
    assert store.latest_step() == 3
  with CheckpointStore(folder, create=False) as store:
    assert store.read_extras(None) == EXTRAS
    found = store.restore(None, target, with_reference=True)
    chex.assert_trees_all_equal(jax.device_get(found.state), expected)
    chex.assert_trees_all_equal_structs(found.state, expected)
    assert found.extras == EXTRAS
    assert found.step == 3
    chex.assert_trees_all_equal(found.reference, reference)
    assert store.restore(3, target).reference is None


def test_a_reference_that_was_not_saved_is_none(saved):
  with CheckpointStore(saved) as store:
    found = store.restore(None, learner(), with_reference=True)
  assert found.step == 2
  assert found.reference is None


def test_round_trip_of_a_typed_key(tmp_path):
  key = jax.random.key(3)
  with CheckpointStore(str(tmp_path)) as store:
    store.save(1, {"key": key}, {})
    found = store.restore(None, {"key": jax.random.key(0)}).state["key"]
  np.testing.assert_array_equal(
    jax.random.uniform(found), jax.random.uniform(key)
  )


def test_restore_waits_for_the_save_before_it(tmp_path):
  with CheckpointStore(str(tmp_path)) as store:
    for step in range(3):
      store.save(step, learner(), EXTRAS)
      assert store.restore(None, learner()).step == step
      assert store.read_extras(None) == EXTRAS


def assert_equal_on(num_devices, folder, step):
  like = learner(num_devices)
  places = jax.tree.map(lambda x: x.sharding, like.params)
  target = abstract_state(like.params, MUON, shardings=places)
  with CheckpointStore(folder, create=False) as store:
    found = store.restore(step, target).state
  chex.assert_trees_all_equal(jax.device_get(found), jax.device_get(like))
  assert found.params["w"].sharding == places["w"]
  shards = found.params["w"].addressable_shards
  assert len(shards) == num_devices
  # Split, not copied: each device holds its part.
  assert shards[0].data.size == like.params["w"].size // num_devices


def test_restores_on_another_number_of_devices(tmp_path):
  for saved_on in (1, 4):
    folder = str(tmp_path / str(saved_on))
    with CheckpointStore(folder) as store:
      store.save(1, learner(num_devices=saved_on), EXTRAS)
    for num_devices in (1, 2, 4):
      assert_equal_on(num_devices, folder, 1)


_ON_EIGHT = """
import sys, jax
jax.config.update("jax_num_cpu_devices", 8)
sys.path.insert(0, sys.argv[1])
import checkpoint_test as t
t.assert_equal_on(8, sys.argv[2], 1)
with t.CheckpointStore(sys.argv[2]) as store:
  store.save(2, t.learner(num_devices=8), t.EXTRAS)
"""


def test_restores_on_eight_devices_and_back(tmp_path):
  # In a process of its own, which has eight.
  folder = str(tmp_path / "checkpoints")
  with CheckpointStore(folder) as store:
    store.save(1, learner(num_devices=1), EXTRAS)
  here = str(pathlib.Path(__file__).parent)
  subprocess.run([sys.executable, "-c", _ON_EIGHT, here, folder], check=True)
  for num_devices in (1, 4):
    assert_equal_on(num_devices, folder, 2)


def test_six_updates_equal_three_and_a_resume_of_three(
  make_learner, make_batch, tmp_path
):
  state, fns = make_learner(LossConfig(), MUON)
  target = jax.tree.map(jnp.zeros_like, state)

  def run(state, steps):
    for step in steps:
      batch = make_batch(seed=step)
      advantages = np.random.default_rng(step).normal(size=batch.tokens.shape)
      micros = [(batch, advantages.astype(np.float32))]
      state, metrics = update(state, micros, fns=fns)
      assert metrics["grad_norm"] > 0
    return state

  with CheckpointStore(str(tmp_path)) as store:
    state = run(state, range(3))
    store.save(3, state, {"cursor": 3})
    straight = run(state, range(3, 6))
  with CheckpointStore(str(tmp_path)) as store:
    restored = store.restore(None, target)
    resumed = run(restored.state, range(restored.extras["cursor"], 6))
  chex.assert_trees_all_equal(jax.device_get(resumed), jax.device_get(straight))
  assert fns.gradient._cache_size() == 1
  assert fns.apply._cache_size() == 1


def test_only_the_latest_are_kept(tmp_path):
  with CheckpointStore(str(tmp_path), keep=2) as store:
    for step in (1, 2, 5):
      store.save(step, {"w": jnp.ones(2)}, {})
    assert store.all_steps() == [2, 5]
  names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
  assert names == ["2", "5"]


def test_missing_folder_and_missing_step_are_named(tmp_path, saved):
  with pytest.raises(ValueError, match=r"folder .*/nowhere does not exist"):
    CheckpointStore(str(tmp_path / "nowhere"), create=False)
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match=r"/file is a file"):
    CheckpointStore(str(tmp_path / "file"))
  with CheckpointStore(str(tmp_path / "empty")) as store:
    with pytest.raises(ValueError, match=r"no checkpoint in .*/empty"):
      store.restore(None, learner())
  with CheckpointStore(saved) as store:
    with pytest.raises(ValueError, match=r"step 9 .*found \[1, 2\]"):
      store.restore(9, learner())


def test_step_must_be_new_and_extras_json(saved):
  with CheckpointStore(saved) as store:
    with pytest.raises(ValueError, match="already holds step 2"):
      store.save(2, learner(), EXTRAS)
    with pytest.raises(ValueError, match="extras must be values of JSON"):
      store.save(3, learner(), {"cursor": jnp.ones(1)})


def test_another_model_is_named_by_its_first_leaf(saved):
  with CheckpointStore(saved) as store:
    with pytest.raises(
      ValueError, match=r"params\.b has shape \(2, 8\) .* and \(2, 6\) in this"
    ):
      store.restore(None, learner(width=6))
    adam = make_optimizer(OptimizerConfig(name="adamw"))
    with pytest.raises(
      ValueError, match=r"opt_state\S+ has shape none in the checkpoint"
    ):
      store.restore(None, learner(optimizer=adam))


def assert_full_disk_is_explained(store, folder, kept, fill):
  def save_until_full():
    nonlocal kept
    while True:
      fill(store, kept + 1)
      kept += 1

  with pytest.raises(OSError, match="disk is full") as caught:
    save_until_full()
  assert caught.value.errno == errno.ENOSPC
  assert str(folder) in str(caught.value)
  assert "Free space" in str(caught.value)
  assert not files_below(folder, "*orbax-checkpoint-tmp")
  return kept


@pytest.mark.parametrize("asynchronous", [True, False])
def test_full_disk_keeps_earlier_checkpoints(tmp_path, asynchronous, capfd):
  tiny = tmp_path / "tiny"
  tiny.mkdir()
  mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tiny)]
  if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
    pytest.skip("needs the right to mount a small file system")
  state = {"w": jax.random.normal(jax.random.key(0), (600, 200))}

  def fill(store, step):
    store.save(step, state, {"cursor": step})
    store.wait()

  try:
    with CheckpointStore(
      str(tiny / "c"), keep=100, asynchronous=asynchronous
    ) as store:
      last = assert_full_disk_is_explained(store, tiny / "c", 0, fill)
      assert last >= 2
      for step in range(1, last + 1):
        found = store.restore(step, state)
        chex.assert_trees_all_equal(found.state, state)
        assert found.extras == {"cursor": step}
    # Room again: the store goes on where it stopped.
    subprocess.run(["rm", "-r", str(tiny / "c" / "1")], check=True)
    with CheckpointStore(str(tiny / "c")) as store:
      fill(store, last + 1)
      assert store.latest_step() == last + 1
  finally:
    subprocess.run(["umount", str(tiny)], check=True)
  assert "Traceback" not in capfd.readouterr().err


def test_full_disk_reported_as_text_is_explained(saved, monkeypatch):
  # The array writer's own wording; it raises ValueError, not OSError.
  def fail(self, step, **kwargs):
    raise ValueError(
      "RESOURCE_EXHAUSTED: Failed to write 3 bytes to file 7: No space left on"
      " device [os_error_code='28']"
    )

  with CheckpointStore(saved) as store:
    monkeypatch.setattr(ocp.CheckpointManager, "save", fail)
    assert_full_disk_is_explained(
      store, saved, 2, lambda s, step: s.save(step, learner(), {})
    )
    monkeypatch.undo()
    store.save(3, learner(), {})
    store.wait()
    assert store.latest_step() == 3
