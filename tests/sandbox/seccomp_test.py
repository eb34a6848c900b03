"""The system call filter, run by a packet filter machine in Python."""

import errno
import struct

import pytest

from arl_jax.sandbox.seccomp import system_call_filter

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED = "allowed", "killed"
CLONE_THREAD, CLONE_VM, CLONE_NEWUSER, SIGCHLD = 0x10000, 0x100, 0x10000000, 17
# Of threads, as the C library starts them.
THREAD_FLAGS = 0x3D0F00

# Numbers from the kernel's tables: x86_64, aarch64.
NUMBERS = {
  "read": (0, 63),
  "openat": (257, 56),
  "mmap": (9, 222),
  "execve": (59, 221),
  "futex": (202, 98),
  "connect": (42, 203),
  "prlimit64": (302, 261),
  "getrandom": (318, 278),
  "clone": (56, 220),
  "clone3": (435, 435),
  "socket": (41, 198),
  "socketpair": (53, 199),
  "unshare": (272, 97),
  "setns": (308, 268),
  "mount": (165, 40),
  "ptrace": (101, 117),
  "process_vm_readv": (310, 270),
  "keyctl": (250, 219),
  "bpf": (321, 280),
  "userfaultfd": (323, 282),
  "io_uring_setup": (425, 425),
  "memfd_create": (319, 279),
  "shmget": (29, 194),
  "open_by_handle_at": (304, 265),
  "perf_event_open": (298, 241),
}
REFUSED = list(NUMBERS)[list(NUMBERS).index("unshare") :]
INNOCENT = list(NUMBERS)[: list(NUMBERS).index("clone")]


def decide(program: bytes, arch: int, number: int, argument: int = 0) -> object:
  """Runs a filter; returns ALLOWED, KILLED or the error that it gives."""
  data = struct.pack("=IIQQQQQQQ", number, arch, 0, argument, 0, 0, 0, 0, 0)
  steps = list(struct.iter_unpack("=HBBI", program))
  accumulator, position = 0, 0
  while True:
    operation, if_true, if_not, value = steps[position]
    position += 1
    if operation == 0x20:
      (accumulator,) = struct.unpack_from("=I", data, value)
      continue
    if operation == 0x06:
      if value & 0xFFFF0000 == 0x00050000:
        return value & 0xFFFF
      return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}[value]
    holds = {
      0x15: accumulator == value,
      0x35: accumulator >= value,
      0x45: bool(accumulator & value),
    }[operation]
    position += if_true if holds else if_not


@pytest.fixture(name="call", params=MACHINES)
def machine(request):
  program = system_call_filter(request.param)
  column = list(MACHINES).index(request.param)

  def call(name, argument=0):
    number = NUMBERS[name][column]
    return decide(program, MACHINES[request.param], number, argument)

  return call


@pytest.mark.parametrize("name", INNOCENT)
def test_what_every_program_needs_is_allowed(call, name):
  assert call(name, 0xFFFFFFFF) == ALLOWED


@pytest.mark.parametrize("name", REFUSED)
def test_what_leads_out_is_refused(call, name):
  assert call(name) == errno.EPERM


def test_threads_can_be_started_and_processes_cannot(call):
  assert call("clone", THREAD_FLAGS) == ALLOWED
  assert call("clone", SIGCHLD) == errno.EPERM
  assert call("clone", CLONE_VM | SIGCHLD) == errno.EPERM
  assert call("clone", CLONE_NEWUSER | SIGCHLD) == errno.EPERM
  # Its flags cannot be read; whoever calls it falls back to clone.
  assert call("clone3") == errno.ENOSYS


@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_sockets_are_of_isolated_kinds(call, name):
  for family in (1, 2, 10):
    assert call(name, family) == ALLOWED
  for family in (0, 3, 16, 17, 38, 40):  # netlink, packet, alg, vsock
    assert call(name, family) == errno.EAFNOSUPPORT


def test_processes_cannot_be_started_by_old_names():
  program = system_call_filter("x86_64")
  for number in (57, 58):
    assert decide(program, MACHINES["x86_64"], number) == errno.EPERM


def test_other_tables_of_system_calls_are_no_way_around():
  program = system_call_filter("x86_64")
  assert decide(program, 0x40000003, 2) == KILLED  # fork of i386
  assert decide(program, MACHINES["x86_64"], 0x40000000 + 57) == KILLED
  assert decide(system_call_filter("aarch64"), 0x40000028, 2) == KILLED


def test_an_unknown_machine_is_refused():
  with pytest.raises(ValueError, match="machine is 'riscv64'; expected one of"):
    system_call_filter("riscv64")


def test_it_fits_what_the_kernel_takes_and_a_pipe_holds():
  for name in MACHINES:
    assert len(system_call_filter(name)) <= 4096
