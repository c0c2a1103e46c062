#!/usr/bin/env bash
# The demonstration: trains a small byte-level GPT on this repository with two ranks, kills one
# of them half-way with SIGKILL, and shows that the run ends as if nothing had happened.
# Ctrl-C at any moment leaves no process and a run that the same command takes up again.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${BIN:-build/release/bin}
run=runs/demo
steps=$(sed -n 's/^ *steps: *\([0-9]*\).*/\1/p' configs/demo.yaml)
half=$((steps / 2 + 20)) # some steps after a checkpoint: they are done again
launcher=
killer=

say() { if [ -t 1 ]; then printf '\033[1m>>> %s\033[0m\n' "$*"; else printf '>>> %s\n' "$*"; fi; }

# what the demonstration started, it ends: the launcher by its pid, and with it every worker
finish() {
    [ -z "$killer" ] || kill "$killer" 2>/dev/null
    if [ -n "$launcher" ] && kill -0 "$launcher" 2>/dev/null; then
        kill -TERM "$launcher" 2>/dev/null
        wait "$launcher"
    fi
}
on_interrupt() {
    trap '' INT TERM
    finish
    say "interrupted; the same command goes on from the last checkpoint in $run/ckpt"
    exit 130
}
trap on_interrupt INT TERM

last_step() { tail -n 1 "$run/metrics.jsonl" 2>/dev/null | sed -n 's/.*"step":\([0-9]*\).*/\1/p'; }

children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
generations() { find "$run/log" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n | paste -sd ' '; }

# the pid of the worker with local rank 1 under the launcher, through the keeper
find_rank() {
    local keeper worker
    for keeper in $(children "$1"); do
        for worker in $(children "$keeper"); do
            tr '\0' '\n' <"/proc/$worker/environ" 2>/dev/null | grep -qx 'RANK=1' && echo "$worker"
        done
    done
}

kill_half_way() {
    local step pid
    while kill -0 "$1" 2>/dev/null; do
        step=$(last_step)
        if [ "${step:-0}" -ge "$half" ]; then
            pid=$(find_rank "$1" | head -n 1)
            [ -n "$pid" ] || continue
            say "step $step: kill -9 $pid (rank 1)"
            kill -9 "$pid"
            return
        fi
        sleep 0.05
    done
}

if [ "$(last_step)" = "$steps" ]; then
    say "removing the finished run of an earlier demonstration ($run)"
    rm -rf "$run"
fi
say "ctrun --standalone --nproc-per-node=2 --max-restarts=3 ctrun-worker --config-path=configs --config-name=demo.yaml"
"$bin/ctrun" --standalone --nproc-per-node=2 --max-restarts=3 \
    ctrun-worker --config-path=configs --config-name=demo.yaml &
launcher=$!
if [ "$(last_step)" = "" ] || [ "$(last_step)" -lt "$half" ]; then
    kill_half_way "$launcher" &
    killer=$!
fi
wait "$launcher"
status=$?
launcher=
finish
[ "$status" -eq 0 ] || { say "the run ended with status $status"; exit "$status"; }
cat <<TXT

Every step is in $run/metrics.jsonl exactly once, although a rank was killed on the way:
  steps recorded $(wc -l <"$run/metrics.jsonl") of $steps, run generations $(generations)
Where things lie
  $run/metrics.jsonl          one line a step
  $run/ckpt/                  checkpoints: $bin/ctrun ckpt list $run/ckpt
  $run/log/<generation>/      a log for each rank
  $run/config.yaml            the whole configuration
What to try next
  $bin/ctrun ckpt show $run
      the newest checkpoint; its last line is the answer
  $bin/ctrun --nproc-per-node=1 ctrun-worker --config-path=configs --config-name=demo.yaml run.name=one
      the same training on one rank: the same losses, bit for bit
      (compare: $bin/ctrun ckpt show runs/one ends with the same state_hash)
  $bin/ctrun-worker --config-path=configs --config-name=demo.yaml --dry-run
      what a run would take
TXT
