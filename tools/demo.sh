#!/bin/sh
# The main job on the lab: build everything, three pods on one GPU, then four, then a fifth that waits.
set -eu
cd "$(dirname "$0")/.."
. ./.lab/env
step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
play() { ansible-playbook "$@"; }

step '1/4 site.yml: network, keys, cluster, image, nodes, sharing, and the sample at 3 replicas'
play site.yml
step '2/4 the sample at 4 replicas'
play playbooks/app.yml -e sample_app_replicas=4
step '3/4 a fifth replica, for which no GPU memory is left'
play playbooks/app.yml -e sample_app_replicas=5 -e sample_app_wait=false
step '4/4 who runs where'
play playbooks/report.yml >build/report.log || { cat build/report.log; exit 1; }
cat build/report.txt
printf '\nThe lab stays up. To look around: . .lab/env   To end it: make lab-stop\n'
