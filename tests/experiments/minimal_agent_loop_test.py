import jax
import numpy as np

from experiments import minimal_agent_loop as loop


def test_success_rises_substantially(capsys):
  before, after = loop.main(num_steps=50)
  assert before < 0.1
  assert after > before + 0.25
  curve = [
    line for line in capsys.readouterr().out.splitlines() if "step" in line
  ]
  assert len(curve) == 5


def test_the_mask_is_what_the_agent_said():
  params = loop.init_policy(jax.random.key(0))
  episodes = loop.play(params, range(256), jax.random.key(1))
  tokens, turn_ids, rewards, state_ids = loop.trajectories(episodes)
  said, heard = tokens[turn_ids >= 0], tokens[turn_ids < 0]
  assert said.max() < len(loop.SPOKEN)
  assert {"free", "full", "what?"} <= {loop.WORDS[word] for word in heard}
  # A turn is there in all three ways, or in none.
  num_turns = turn_ids.max(axis=1) + 1
  np.testing.assert_array_equal((state_ids >= 0).sum(axis=1), num_turns)
  assert [len(e.rewards) for e in episodes] == num_turns.tolist()
  np.testing.assert_array_equal(
    rewards.sum(axis=1), [sum(e.rewards) for e in episodes]
  )


def test_a_careful_agent_always_succeeds():
  for task in range(50):
    desk = loop.Desk(task)
    seat = ""
    while seat != "free":
      (flight, seat), ended, reward = desk.answer(["search"])
      assert (ended, reward) == (False, 0.0)
    assert desk.answer(["book", flight]) == (["booked"], True, 1.0)


def test_a_wrong_booking_sounds_like_a_right_one():
  task = next(t for t in range(50) if loop.Desk(t).num_full > 0)
  desk = loop.Desk(task)
  desk.answer(["search"])
  assert desk.answer(["book", desk.by_price[0]]) == (["booked"], True, 0.0)


def test_senseless_calls_have_an_answer():
  desk = loop.Desk(0)
  for call in (["A"], ["book", "A"], ["book", "search"]):
    assert desk.answer(call) == (["what?"], False, 0.0)
  assert desk.told == ()


def test_the_file_stays_short():
  with open(loop.__file__, encoding="utf-8") as file:
    assert len(file.readlines()) <= 200
