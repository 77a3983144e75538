"""The lab's one door: python -m lab build | up | down | serve | status | env."""

from __future__ import annotations

import argparse
import logging
import sys

from lab import LabError, build, lifecycle, state_dir
from lab.processes import free_ports


def _build() -> int:
    build.ensure()
    print(f"programs: {build.binaries()}\nchart: {build.chart()}")
    return 0


def _up() -> int:
    print(lifecycle.up())
    return 0


def _down() -> int:
    print(lifecycle.down())
    return 0


def _serve() -> int:
    # Imported here: the daemon brings moto, which costs a second that the other doors need not pay.
    from lab.server import Daemon

    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    Daemon(state_dir(), free_ports(1)[0]).run()
    return 0


def _status() -> int:
    ok, text = lifecycle.status()
    print(text)
    return 0 if ok else 1


def _env() -> int:
    path = state_dir() / "env"
    if not path.exists():
        raise LabError("no lab runs here; `python -m lab up` starts one and writes .lab/env")
    print(path.read_text(), end="")
    return 0


COMMANDS = {
    "build": (_build, "build the programs and fetch NVIDIA's chart into the cache"),
    "up": (_up, "start the lab and write .lab/env"),
    "down": (_down, "end the lab and remove every trace"),
    "serve": (_serve, "run the lab's daemon in the foreground (`up` starts it detached)"),
    "status": (_status, "show the lab's parts; code 1 when it does not answer"),
    "env": (_env, "print the shell exports of the running lab"),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, description=text)
    command = parser.parse_args(arguments).command
    try:
        return COMMANDS[command][0]()
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
