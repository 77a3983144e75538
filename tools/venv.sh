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
# Every Ansible module is a new Python process: compiled files of what it imports save 0.3 s each.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$site"
for name in amazon community/aws community/general kubernetes; do
  set -- "$@" "ansible_collections/$name"
done
shift
"$OLDPWD/$venv/bin/python" -m compileall -q -j 2 ansible boto3 botocore s3transfer kubernetes openshift \
  moto molecule "$@" >/dev/null || true
