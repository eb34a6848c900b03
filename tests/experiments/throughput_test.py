import asyncio
import dataclasses
import functools
import importlib
import os
import pathlib
import sys
from types import ModuleType

import pytest

from experiments.throughput import compare

FOLDER = pathlib.Path(compare.__file__).parent

TINY = (
  "--num_layers=1",
  "--model_dim=32",
  "--mlp_dim=64",
  "--num_heads=2",
  "--num_kv_heads=1",
  "--head_dim=16",
  "--vocab_size=512",
  "--num_steps=4",
)


def _result(value: float, compilations_after_warmup: int = 0) -> compare.Result:
  result = dict.fromkeys(compare.QUANTITIES, value)
  return result | {"compilations_after_warmup": compilations_after_warmup}


def test_the_result_is_one_line_among_others():
  stdout = 'progress\nRESULT {"cpu_seconds": 1.5}\nRESULTS follow\n'
  assert compare.parse_result(stdout) == {"cpu_seconds": 1.5}


@pytest.mark.parametrize("stdout", ["", "RESULT {}\nRESULT {}\n"])
def test_a_program_that_reports_not_once_is_an_error(stdout: str):
  with pytest.raises(ValueError, match="expected 1"):
    compare.parse_result(stdout)


def test_the_model_of_the_processor():
  cpuinfo = "processor\t: 0\nmodel name\t: A: B\n\nmodel name\t: C\n"
  assert compare.parse_cpu(cpuinfo) == "A: B"
  assert compare.parse_cpu("processor\t: 0\n") == "unknown CPU"


def test_a_median_has_its_range():
  assert compare.describe([3.0, 1.0, 2.0, 9.0], 1) == "2.5 (1.0 to 9.0)"
  assert compare.describe([12, 12], 0) == "12"


def test_a_ratio_is_that_of_a_pair():
  pairs = [(_result(1.0), _result(2.0)), (_result(9.0), _result(3.0))]
  assert compare.ratios(pairs, "cpu_seconds") == [0.5, 3.0]
  assert compare.ratios(pairs, "compilations_after_warmup") == []


def test_the_table_has_a_line_for_each_quantity_of_a_workload():
  pairs = [
    (_result(1.0), _result(2.0, 1)),
    (_result(2.0), _result(8.0, 3)),
    (_result(3.0), _result(3.0, 2)),
  ]
  lines = compare.table({"plain": pairs, "agentic": pairs[:1]}).splitlines()
  assert len(lines) == 2 + 2 * len(compare.QUANTITIES)
  assert lines[2] == (
    "| plain | CPU-seconds a step | 2.00 (1.00 to 3.00) |"
    " 3.00 (2.00 to 8.00) | 0.50 (0.25 to 1.00) |"
  )
  assert lines[6] == (
    "| plain | compilations after warm-up | 0 | 2 (1 to 3) | 0.00 |"
  )
  assert lines[8] == "| agentic | CPU-seconds a step | 1.00 | 2.00 | 0.50 |"


def test_both_programs_get_an_environment_without_a_cache():
  variables = {"HOME": "here", "JAX_COMPILATION_CACHE_DIR": "there"}
  assert compare.make_environment(variables, hugepages=False) == {
    "HOME": "here"
  }
  assert compare.make_environment(variables, hugepages=True) == {
    "HOME": "here",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
  }


def test_a_failing_program_ends_the_comparison_and_says_why():
  command = [sys.executable, "-c", "raise ValueError('the cause')"]
  with pytest.raises(SystemExit, match="the cause"):
    compare.run(command, dict(os.environ))


@pytest.mark.parametrize("mode", ["plain", "agentic"])
def test_a_step_compiles_nothing_after_warm_up(mode: str):
  environment = compare.make_environment(dict(os.environ), hugepages=False)
  result = compare.measure(
    sys.executable, "ours.py", (f"--mode={mode}", *TINY), environment
  )
  assert result["compilations"] <= 12
  assert result["compilations_after_warmup"] == 0
  assert result["sampled"] == {"plain": 2048, "agentic": 1536}[mode]


@pytest.fixture
def reuse(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
  monkeypatch.syspath_prepend(str(FOLDER))  # a script finds its neighbours
  return importlib.import_module("reuse")


@functools.cache
def _counts(reuse: ModuleType):
  return asyncio.run(reuse.measure([(1, 1), (4, 1), (1, 4)]))


def test_work_grows_with_the_tokens_of_an_episode(reuse: ModuleType):
  one, four, _ = _counts(reuse)
  assert (one.row_tokens, one.prefilled, one.sampled) == (64, 47, 16)
  assert one.prefilled_anew == 47
  # Three answers of 8 tokens, and three turns of 16, were added.
  assert (four.row_tokens, four.prefilled, four.sampled) == (136, 71, 64)
  assert four.prefilled_anew == 47 + 71 + 95 + 119


def test_a_prompt_is_computed_once_for_its_group(reuse: ModuleType):
  *_, group = _counts(reuse)
  assert (group.prefilled, group.shared) == (47, 3 * 47)
  assert (group.row_tokens, group.sampled) == (4 * 64, 4 * 16)
  assert group.prefilled_anew == 4 * 47


def test_what_contradicts_the_claims_is_found(reuse: ModuleType):
  for counts in _counts(reuse):
    assert not reuse.faults(counts)
  _, four, group = _counts(reuse)
  anew = dataclasses.replace(four, prefilled=four.prefilled_anew)
  assert len(reuse.faults(anew)) == 3
  alone = dataclasses.replace(group, prefilled=4 * 47, shared=0)
  assert len(reuse.faults(alone)) == 1


def test_the_tables_show_the_counts(reuse: ModuleType):
  one, four, group = _counts(reuse)
  lines = reuse.turns_table([one, four]).splitlines()
  assert lines[-1] == "| 4 | 136 | 71 | 64 | 0.99 | 332 | 2.91 |"
  assert reuse.groups_table([group]).splitlines()[-1] == (
    "| 4 | 47 | 141 | 188 |"
  )
