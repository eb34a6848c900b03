"""Tests of the scripted customer."""

from arl_jax.envs.airline_user import (
  ALL_TOLD,
  Script,
  ScriptedUser,
  in_first_person,
)

SCRIPT = Script(
  facts=("I am Mia Li.", "My user id is mia_li_3668."),
  wishes=("I want an aisle seat.", "I pay by card."),
)


def test_customer_tells_what_is_asked_then_what_they_want():
  user = ScriptedUser(SCRIPT)
  assert user.reply("What is your user id?") == "My user id is mia_li_3668."
  assert user.reply("Thank you.") == "I want an aisle seat."
  assert user.reply("I booked it.") == "I pay by card."
  assert user.reply("Paid.") == "I am Mia Li."
  assert user.num_told == 4
  assert user.reply("All is done.") is None


def test_customer_confirms_and_repeats_a_fact_only_when_asked():
  user = ScriptedUser(SCRIPT)
  assert user.reply("User id?") == "My user id is mia_li_3668."
  assert user.reply("User id?") == "My user id is mia_li_3668."
  told = "Noted your user id."
  assert user.reply(told) == "I want an aisle seat."
  assert user.reply("Shall I proceed?") == "Yes. I pay by card."
  assert user.reply("Please confirm the price.") == "Yes. I am Mia Li."
  assert user.reply("Please confirm the price.") == "Yes."
  assert user.reply("What colour?") == ALL_TOLD


def test_customer_loses_patience():
  user = ScriptedUser(Script(facts=(), wishes=()))
  replies = [user.reply("Why?") for _ in range(6)]
  assert replies == [ALL_TOLD] * 5 + [None]


def test_customer_speaks_in_the_first_person():
  assert (
    in_first_person("You want to pay with your card. you were told so by you.")
    == "I want to pay with my card. I was told so by me."
  )
