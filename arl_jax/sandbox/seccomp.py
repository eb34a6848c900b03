"""Builds the system call filter of code that is kept from starting processes.

The filter is a program for the kernel's packet filter machine, as
`seccomp(SECCOMP_SET_MODE_FILTER)` and bwrap's `--seccomp` take it. It looks at
the number of a system call and, for some, at the first argument.

- `clone` is allowed for threads alone. `clone3` keeps its flags in memory,
  where a filter cannot look; it is said not to exist, and C libraries then use
  `clone`. Filtering `fork` by name alone stops nothing: the C library never
  calls it.
- Sockets are of the kinds that a network namespace isolates. A `vsock` leads
  from a virtual machine to its host whatever the namespace is.
- Memory that no limit counts, and kernel interfaces that a program of a policy
  has no use for, are refused: each has been a way out before.
"""

import errno
import struct

# Numbers that <linux/audit.h> gives to machines, and system calls on them.
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED = {
  "x86_64": {
    "shmget": 29,
    "fork": 57,
    "vfork": 58,
    "semget": 64,
    "msgget": 68,
    "ptrace": 101,
    "syslog": 103,
    "personality": 135,
    "modify_ldt": 154,
    "pivot_root": 155,
    "chroot": 161,
    "acct": 163,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "quotactl": 179,
    "mq_open": 240,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "memfd_create": 319,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
  },
  "aarch64": {
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "quotactl": 60,
    "acct": 89,
    "personality": 92,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "syslog": 116,
    "ptrace": 117,
    "mq_open": 180,
    "msgget": 186,
    "semget": 190,
    "shmget": 194,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "swapon": 224,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "memfd_create": 279,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
  },
}
# Newer calls have one number everywhere.
_REFUSED_EVERYWHERE = {
  "io_uring_setup": 425,
  "io_uring_enter": 426,
  "io_uring_register": 427,
  "open_tree": 428,
  "move_mount": 429,
  "fsopen": 430,
  "fsconfig": 431,
  "fsmount": 432,
  "fspick": 433,
  "pidfd_getfd": 438,
  "mount_setattr": 442,
  "memfd_secret": 447,
}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_SOCKETS = {"x86_64": (41, 53), "aarch64": (198, 199)}
_CLONE_THREAD = 0x00010000
_SOCKET_FAMILIES = (1, 2, 10)  # unix, inet, inet6
# The second set of numbers that an x86_64 kernel takes.
_X32_BIT = 0x40000000

# Operations of the packet filter machine, and offsets in struct seccomp_data.
_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def system_call_filter(machine: str) -> bytes:
  """Returns the filter for a machine, as `platform.machine()` names it.

  Raises:
    ValueError: the numbers of this machine are not known.
  """
  if machine not in _MACHINES:
    raise ValueError(
      f"machine is {machine!r}; expected one of {sorted(_MACHINES)}"
    )
  program = [
    _step(_LOAD, _MACHINE),
    _step(_EQUAL, _MACHINES[machine], 1, 0),
    _step(_RETURN, _KILL),
    _step(_LOAD, _NUMBER),
    _step(_AT_LEAST, _X32_BIT, 0, 1),
    _step(_RETURN, _KILL),
  ]
  refused = _REFUSED[machine] | _REFUSED_EVERYWHERE
  for number in sorted(refused.values()):
    program += [
      _step(_EQUAL, number, 0, 1),
      _step(_RETURN, _FAIL | errno.EPERM),
    ]
  program += [
    _step(_EQUAL, _CLONE3, 0, 1),
    _step(_RETURN, _FAIL | errno.ENOSYS),
    _step(_EQUAL, _CLONE[machine], 0, 4),
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_HAS_BIT, _CLONE_THREAD, 1, 0),
    _step(_RETURN, _FAIL | errno.EPERM),
    _step(_RETURN, _ALLOW),
  ]
  for number in _SOCKETS[machine]:
    program += [
      _step(_EQUAL, number, 0, len(_SOCKET_FAMILIES) + 3),
      _step(_LOAD, _FIRST_ARGUMENT),
      *(
        _step(_EQUAL, family, len(_SOCKET_FAMILIES) - i, 0)
        for i, family in enumerate(_SOCKET_FAMILIES)
      ),
      _step(_RETURN, _FAIL | errno.EAFNOSUPPORT),
      _step(_RETURN, _ALLOW),
    ]
  program.append(_step(_RETURN, _ALLOW))
  return b"".join(program)


def _step(operation: int, value: int, if_true: int = 0, if_not: int = 0):
  """Packs a struct sock_filter; jumps count the steps that they leave out."""
  return struct.pack("=HBBI", operation, if_true, if_not, value)
