"""What an STDIO server is started with: its program as an absolute path, its arguments, its environment.

Decides before anything is started, so that a registration that cannot work is told in words. Of the
gateway's own environment a server gets the few variables every program expects, and no more: the rest
may be secrets. `spawner.py` starts it.
"""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from trunkline.errors import ConfigurationFault, NotSent, UpstreamError
from trunkline.model import StdioSpec

_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
_INHERITED_PREFIX = "LC_"


def child_environment(declared: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The minimum, and over it what the registration declares."""
    inherited = {
        name: value
        for name, value in own.items()
        if (name in _INHERITED or name.startswith(_INHERITED_PREFIX))
        # Such a value is an exported shell function.
        and not value.startswith("()")
    }
    return {**inherited, **declared}


def command_line(spec: StdioSpec, env: Mapping[str, str]) -> list[str]:
    """The arguments to start it with, the program's absolute path first. Raises `ConfigurationFault`."""
    for part in (spec.command, *spec.args, *env, *env.values()):
        if not _can_be_given(part):
            raise _fault("Its command line or environment has characters that no program can be given")
    for name in env:
        if not name or "=" in name:
            raise _fault("Its environment has a variable whose name is empty or contains '='")
    return [_program(spec, env), *spec.args]


def start_fault(program: str, error: OSError) -> UpstreamError:
    """What the kernel's refusal says, of the registration or of the machine."""
    shown = repr(program)
    if error.errno == errno.ENOENT:
        return _fault(f"The program {shown} names an interpreter in its first line that does not exist")
    if error.errno == errno.ENOEXEC:
        return _fault(f"The file {shown} is no program: give a script a first line like #!/bin/sh")
    if error.errno == errno.E2BIG:
        return _fault(f"The arguments and environment for {shown} are larger than the system allows")
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.EINVAL):
        return _fault(f"The program {shown} could not be started: {error.strerror}")
    return NotSent(f"The program could not be started: {error.strerror}", phase="connect")


def _program(spec: StdioSpec, env: Mapping[str, str]) -> str:
    command = spec.command
    path = env.get("PATH", os.defpath)
    if found := shutil.which(command, path=path):
        return os.path.abspath(found)
    shown = repr(command)
    if os.path.dirname(command):
        if not os.path.exists(command):
            raise _fault(f"The command {shown} does not exist")
        if Path(command).is_dir():
            raise _fault(f"The command {shown} is a folder")
        raise _fault(f"The command {shown} is not executable: allow it with chmod +x")
    whose = "the PATH its env sets" if "PATH" in spec.env else "the gateway's PATH"
    raise _fault(f"The command {shown} was not found on {whose}: install it, or give its absolute path")


def _can_be_given(text: str) -> bool:
    try:
        return "\0" not in text and bool(os.fsencode(text) or True)
    except UnicodeEncodeError:
        return False


def _fault(reason: str) -> ConfigurationFault:
    return ConfigurationFault(reason, phase="connect")
