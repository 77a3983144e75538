"""The programs of one control plane as processes: started, watched, and started again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import LabError
from lab.processes import check_running, start_bound, tail, wait_port

# A program that dies again and again is beyond help; one that ran so long may begin anew.
RESTARTS, STABLE_S = 3, 60.0
_LOOK_S = 0.5
log = logging.getLogger("lab.controlplane")


@dataclass
class Program:
    """One child: how it is started, and what runs now."""

    name: str
    arguments: list[str]
    port: int
    child: subprocess.Popen | None = None
    restarts: int = 0
    started_at: float = 0.0
    # Somebody asked for its end, so that it is no failure.
    asked: bool = False


class Supervisor:
    """Programs of the cluster `owner`, from `binaries`, with all their files below `state_dir`."""

    def __init__(
        self, owner: str, state_dir: Path, binaries: Path, commands: Mapping[str, tuple]
    ) -> None:
        self.owner, self.state_dir, self._binaries = owner, state_dir, binaries
        self.programs = {name: Program(name, *given) for name, given in commands.items()}
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    # -- life -----------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start one program, in an environment with nothing of the caller's."""
        program = self.programs[name]
        temporary = self.state_dir / "tmp"
        temporary.mkdir(exist_ok=True)
        # A clean environment: no proxy, no credentials and no Kubernetes settings of the caller.
        env = {
            "PATH": os.defpath,
            "HOME": str(self.state_dir),
            "TMPDIR": str(temporary),
            "NO_PROXY": "*",
            # A larger share of processor time for a third less memory: five programs per cluster.
            "GOGC": "60",
        }
        program.started_at = time.monotonic()
        program.child = start_bound(
            [str(self._binaries / name), *program.arguments],
            log=self.log(name),
            record=self.state_dir / "run" / f"{name}.json",
            env=env,
            cwd=self.state_dir,
        )

    def wait(self, name: str, timeout: float) -> None:
        """Wait until the program listens on its port; LabError when it does not."""
        program = self.programs[name]
        assert program.child is not None
        what = f"cluster {self.owner}: {name}"
        wait_port(program.port, program.child, timeout, what, self.log(name))

    def check(self) -> None:
        """LabError when a program that was started has ended."""
        for name, program in self.programs.items():
            if program.child is not None:
                check_running(program.child, f"cluster {self.owner}: {name}", self.log(name))

    def watch(self) -> None:
        """From now on start again what dies."""
        name = f"lab-watch-{self.owner}"
        self._watcher = threading.Thread(target=self._watch, name=name, daemon=True)
        self._watcher.start()

    def stop_watching(self) -> None:
        """From now on what dies stays dead."""
        self._stopping.set()
        if self._watcher:
            self._watcher.join(5)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def healthy(self) -> bool:
        """Whether every program runs at this moment."""
        return all(p.child is not None and p.child.poll() is None for p in self.programs.values())

    def log(self, name: str) -> Path:
        return self.state_dir / "logs" / f"{name}.log"

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            for program in self.programs.values():
                code = program.child.poll() if program.child else None
                if code is not None and not self._stopping.is_set():
                    self._ended(program, code)

    def _ended(self, program: Program, code: int) -> None:
        """Restart a program that died, a few times; what cannot be saved stands in `failures`."""
        program.child = None
        said = f"cluster {self.owner}: {program.name} ended with code {code}"
        if program.asked:
            program.asked = False
            log.info("%s, as it was asked to", said)
        else:
            said += ":\n" + tail(self.log(program.name))
            self.failures.append(said)
            if time.monotonic() - program.started_at <= STABLE_S:
                program.restarts += 1
            if program.restarts > RESTARTS:
                log.error("%s\nno more restarts", said)
                return
            log.warning("%s\nrestart %d", said, program.restarts)
        self.start(program.name)

    # -- doors ----------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """SIGKILL one program; the watcher starts it again."""
        program = self._find(name)
        program.asked = True
        program.child.kill()

    def replace(self, name: str, arguments: list[str], timeout: float) -> None:
        """End one program and have the watcher start it with other arguments; ready at the end."""
        program = self._find(name)
        old = program.child
        program.arguments, program.asked = list(arguments), True
        old.kill()
        deadline = time.monotonic() + timeout
        while program.child is None or program.child is old:
            if self.stopping or time.monotonic() > deadline:
                raise LabError(
                    f"cluster {self.owner}: {name} was not started again with its new arguments: "
                    "its watcher has ended"
                )
            time.sleep(0.02)
        self.wait(name, timeout)

    def pause(self, name: str, seconds: float) -> None:
        """Stop one program for so long, as a machine that hangs."""
        child = self._find(name).child
        child.send_signal(signal.SIGSTOP)
        timer = threading.Timer(seconds, child.send_signal, (signal.SIGCONT,))
        timer.daemon = True
        timer.start()

    def rows(self) -> dict[str, dict[str, Any]]:
        """{program: {pid, restarts}}."""
        return {
            name: {"pid": p.child.pid if p.child else None, "restarts": p.restarts}
            for name, p in self.programs.items()
        }

    def _find(self, name: str) -> Any:
        if name not in self.programs:
            raise ValueError(f"program {name!r}: one of {', '.join(self.programs)}")
        if self.programs[name].child is None:
            raise ValueError(f"cluster {self.owner}: {name} does not run at this moment")
        return self.programs[name]
