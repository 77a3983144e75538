#!/bin/sh
# Runs ansible-test sanity on the collection as it would be installed from its artifact.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
PATH="$root/.venv/bin:$PATH"
# Outside the checkout: ansible-test takes its list of files from git, which ignores the build folder.
tree=$(mktemp -d "${TMPDIR:-/tmp}/gpushare-sanity.XXXXXX")
trap 'rm -rf "$tree"' EXIT
export PATH ANSIBLE_COLLECTIONS_PATH="$tree"
ansible-galaxy collection install . -p "$tree" --force --no-deps --offline >/dev/null
# validate-modules resolves the doc fragments and imports of the collections that ours builds on.
site=$(python -c 'import ansible_collections; print(list(ansible_collections.__path__)[-1])')
for dependency in amazon/aws community/aws kubernetes/core; do
  mkdir -p "$tree/ansible_collections/$(dirname $dependency)"
  ln -s "$site/$dependency" "$tree/ansible_collections/$dependency"
done
# ansible-test makes its virtual environments with a get-pip script of the network; pip is here already.
cache="${HOME}/.ansible/test/cache"
mkdir -p "$cache"
printf 'import ensurepip\nensurepip.bootstrap(default_pip=True)\n' > "$cache/get_pip_24_2.py"
cd "$tree/ansible_collections/gpushare/eks"
ansible-test sanity --color no --python "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" "$@"
