"""Keeps the scripts that need torch out of the search for doctests."""

collect_ignore = ["make_smollm2_greedy.py", "logits/make_reference.py"]
