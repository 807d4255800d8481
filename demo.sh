#!/bin/sh
# The main job, command by command, on this machine: `make demo`.
set -eu
recipe=tiny/p-eagle endpoint=tiny-p-eagle
TOOLKIT_HOME=$(mktemp -d) && export TOOLKIT_HOME
clean_up() { status=$?; toolkit local stop >&2 || true; rm -rf "$TOOLKIT_HOME"; exit $status; }
trap clean_up EXIT
trap 'exit 130' INT TERM
run() { printf '\n$ toolkit'; for word; do case $word in *' '*) printf " '%s'" "$word";; *) printf ' %s' "$word";; esac; done; printf '\n'; toolkit "$@"; }

run check $recipe
run deploy $recipe --baseline --no-prove
run invoke $endpoint "Write JSON records of the books 205 to 210." --max-tokens 160
run prove $recipe --time 40s || [ $? -eq 1 ]  # the answer may be no for one of the workloads
run destroy $recipe --yes
printf '\nFor these commands: . .venv/bin/activate\n'
