#!/bin/sh
# Makes the virtual environment that everything here runs in: tools/venv.sh DIR
set -eu
venv=$1
echo "venv: installing the pinned requirements into $venv"
rm -rf "$venv"
"${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one by PYTHON=...")'
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check uv==0.13.8
"$venv/bin/uv" pip install -q --python "$venv/bin/python" -r test-requirements.txt
# Every Ansible module is a new Python process: compiled files of what it imports save 0.14 s of 0.75. Of the
# collections only those that run here; what is Python 2 or a template among the files is none of ours to judge.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp tools/zip_bytecode.py "$site/zip_bytecode.py"
echo 'import zip_bytecode' >"$site/zip_bytecode.pth"
"$venv/bin/python" -m compileall -q -j 2 -x 'ansible_collections/(?!amazon|community/aws|community/general|kubernetes)' \
  "$site" >/dev/null || true
