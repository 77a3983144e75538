"""Compiled code of what is imported out of a zip file, kept as Python keeps it for plain files.

Ansible sends each module as a zip of sources, which Python compiles twice in every module process:
0.12 s of the 0.6 that a module costs. tools/venv.sh puts this and a .pth file that imports it into
the virtual environment; the cache is a folder beside it and goes with it.
"""

import _imp
import marshal
import os
import zipimport

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zip-bytecode")
_compile = zipimport._compile_source


def _cached(pathname: str, source: bytes):
    # The hash that CPython's own hash-based .pyc files carry; the length makes it longer.
    key = _imp.source_hash(0x67707573, source).hex()
    path = os.path.join(_FOLDER, f"{key}-{len(source)}")
    try:
        with open(path, "rb") as file:
            code = marshal.loads(file.read())
        _imp._fix_co_filename(code, pathname)
        return code
    except (OSError, EOFError, ValueError, TypeError):
        code = _compile(pathname, source)
    try:
        os.makedirs(_FOLDER, exist_ok=True)
        draft = f"{path}.{os.getpid()}"
        with open(draft, "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(draft, path)
    except OSError:
        pass  # a folder that cannot be written costs only the time
    return code


zipimport._compile_source = _cached
