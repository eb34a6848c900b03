"""Runs code that comes over a socket: the program of a sandbox's child.

The host hands the text of this file to a fresh interpreter, so it imports
nothing of this package, and little else, because every import costs
milliseconds.

The socket is number `sys.argv[1]`. The child says `ready`. A request is a line
of numbers, whose meaning is in `_read_request`, then the code and the standard
input. The answer is a line: the request's token and a status; one that ends
without it was ended from within, as by `os._exit`. The socket is not among the
descriptors that code may open, and no program that it starts has it. Code can
find it nevertheless, as it shares this interpreter: then it can end its own
turn, no more.
"""

import _sitebuiltins
import builtins
import fcntl
import os
import resource
import sys
import time

# Above what code may open, which is less than `_MAX_OPEN_FILES`.
_FIRST_KEPT_FD = 900
_MAX_OPEN_FILES = 64


def _keep(fd):
  """Moves a descriptor out of the way of the code and its programs."""
  return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_KEPT_FD)


def _read(channel, num_bytes):
  parts = []
  while num_bytes:
    part = os.read(channel, min(num_bytes, 1 << 20))
    if not part:
      os._exit(0)  # the host is gone
    parts.append(part)
    num_bytes -= len(part)
  return b"".join(parts)


def _read_request(channel):
  line = b""
  while not line.endswith(b"\n"):
    line += _read(channel, 1)
  token, *numbers = line.split()
  code, stdin, cpu, memory, file_bytes, tasks, last = map(int, numbers)
  return (
    token,
    _read(channel, code).decode("utf-8", "surrogatepass"),
    _read(channel, stdin),
    (cpu, memory, file_bytes, tasks),
    bool(last),
  )


def _drop_to(user):
  """Becomes another user, for good."""
  os.setgroups([])
  os.setresgid(user, user, user)
  os.setresuid(user, user, user)


def _limit(what, value):
  """Sets a limit that only the superuser can raise again."""
  hard = resource.getrlimit(what)[1]
  if hard != resource.RLIM_INFINITY:
    value = min(value, hard)
  resource.setrlimit(what, (value, value))


def _set_limits(limits, last):
  cpu, memory, file_bytes, tasks = limits
  _limit(resource.RLIMIT_CORE, 0)
  _limit(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)
  _limit(resource.RLIMIT_FSIZE, file_bytes)
  _limit(resource.RLIMIT_AS, memory)
  if tasks:
    _limit(resource.RLIMIT_NPROC, tasks)
  # The time of a session grows from turn to turn.
  cpu += int(time.process_time())
  if last:
    _limit(resource.RLIMIT_CPU, cpu)
  else:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, hard))


def _die_with_host(channel, wanted):
  """Lets the kernel kill the process group when the host's end closes."""
  if wanted:
    fcntl.fcntl(channel, fcntl.F_SETOWN, -os.getpgrp() or os.getpid())
    fcntl.fcntl(channel, fcntl.F_SETSIG, 9)
  flags = fcntl.fcntl(channel, fcntl.F_GETFL)
  flags = flags | os.O_ASYNC if wanted else flags & ~os.O_ASYNC
  fcntl.fcntl(channel, fcntl.F_SETFL, flags)


def _open_streams(stdin, kept):
  """Gives a turn fresh streams, whatever became of the last turn's."""
  if stdin:
    name = ".stdin-" + os.urandom(8).hex()
    source = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(name)
    written = 0
    while written < len(stdin):
      written += os.write(source, stdin[written:])
    os.lseek(source, 0, os.SEEK_SET)
  else:
    source = os.open(os.devnull, os.O_RDONLY)
  if source:
    os.dup2(source, 0)
    os.close(source)
  for fd in (1, 2):
    os.dup2(kept[fd], fd)

  def text(fd, mode, errors, buffering):
    return open(
      fd,
      mode,
      buffering=buffering,
      encoding="utf-8",
      errors=errors,
      closefd=False,
    )

  sys.stdin = sys.__stdin__ = text(0, "r", "surrogateescape", -1)
  # Line by line: what is printed before a program is killed counts.
  sys.stdout = sys.__stdout__ = text(1, "w", "surrogateescape", 1)
  sys.stderr = sys.__stderr__ = text(2, "w", "backslashreplace", 1)


def _flush(*streams):
  for stream in streams:
    try:
      stream.flush()
    except BaseException:
      pass


def _show(error, sources):
  """Prints a traceback, without the frame of this file."""
  trace = error.__traceback__ and error.__traceback__.tb_next
  try:
    import linecache
    import traceback

    for name, code in sources.items():
      lines = code.splitlines(keepends=True)
      linecache.cache[name] = (len(code), None, lines, name)
    text = "".join(traceback.format_exception(type(error), error, trace))
    print(text, end="", file=sys.__stderr__)
  except BaseException:  # out of memory, or of descriptors
    sys.__excepthook__(type(error), error, trace)


def _execute(code, name, namespace, sources):
  """Returns the status and the exit code."""
  try:
    exec(compile(code, name, "exec", dont_inherit=True), namespace)
  except SystemExit as error:
    if error.code is None:
      return b"ok", 0
    if isinstance(error.code, int):
      exit_code = int(error.code)
      return (b"error", exit_code & 0xFF or 1) if exit_code else (b"ok", 0)
    try:
      print(error.code, file=sys.__stderr__)
    except BaseException:
      pass
    return b"error", 1
  except MemoryError as error:
    _show(error, sources)
    return b"memory", 1
  except BaseException as error:
    _show(error, sources)
    return b"error", 1
  return b"ok", 0


def _serve(channel, kept):
  main = type(sys)("__main__")
  sys.modules["__main__"] = main
  namespace = main.__dict__
  namespace["__builtins__"] = builtins
  sources = {}
  pid = os.getpid()
  while True:
    token, code, stdin, limits, last = _read_request(channel)
    name = "main.py" if last else f"turn_{len(sources) + 1}.py"
    sources[name] = code
    sys.argv = [name]
    namespace["__file__"] = name
    try:
      _open_streams(stdin, kept)
    except OSError as error:  # earlier code has used up its disk or files
      os.write(kept[2], f"OSError: {error}\n".encode())
      status, exit_code = b"error", 1
    else:
      _die_with_host(channel, True)
      _set_limits(limits, last)
      streams = sys.stdout, sys.stderr
      status, exit_code = _execute(code, name, namespace, sources)
      _flush(sys.stdout, sys.stderr, *streams)
    if os.getpid() != pid:  # a copy that the code has forked answers nobody
      return exit_code
    if not last:
      _die_with_host(channel, False)
    os.write(channel, b"%s %s\n" % (token, status))
    if last:
      return exit_code


def _main():
  channel = _keep(int(sys.argv[1]))
  os.close(int(sys.argv[1]))
  if int(sys.argv[2]):
    _drop_to(int(sys.argv[2]))
  sys.path[:] = ["", *sys.path, *sys.argv[3:]]
  builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")
  builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")
  kept = {fd: _keep(fd) for fd in (1, 2)}
  os.write(channel, b"ready\n")
  # What is left to do at the end is what the code registered or started.
  sys.exit(_serve(channel, kept))


if __name__ == "__main__":
  _main()
