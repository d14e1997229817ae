#!/usr/bin/env bash
# Instructions, cache misses and CPU time per event of a running huntd, by the processor's counters.
#
#     bench/perf-stat.sh PID METRICS_ADDRESS [SECONDS]
#
# Where the machine lends its counters to nobody, as most virtual ones, it says so and prints what
# valgrind counts for the stages instead.
set -euo pipefail

if [ "$#" -lt 2 ]; then
    echo "usage: $0 PID METRICS_ADDRESS [SECONDS], as in $0 4711 127.0.0.1:9464 60" >&2
    exit 2
fi
pid="$1"
address="$2"
seconds="${3:-60}"

# Events that the engine has dealt with so far.
events() {
    curl --silent --show-error --fail "http://$address/metrics" | awk '
        /^huntd_events_(applied|refused|no_op)_total / { sum += $2 }
        END { printf "%d\n", sum }'
}

by_valgrind() {
    echo "$1; by valgrind instead:"
    cd "$(dirname "$0")/.."
    cargo bench --quiet --bench stages -- --counts
    exit
}

command -v perf > /dev/null || by_valgrind "perf is not installed (linux-perf)"
counts="$(mktemp)"
trap 'rm -f "$counts"' EXIT
before="$(events)"
perf stat -e cache-misses,instructions,cpu-clock -d -p "$pid" -x ';' -o "$counts" -- \
    sleep "$seconds" || by_valgrind "perf may not count here"
count="$(($(events) - before))"
if [ "$count" -le 0 ]; then
    echo "huntd has dealt with no event in $seconds s: is there a load?" >&2
    exit 1
fi

echo "$count events in $seconds s; per event:"
# A line is: value, unit, event and more. cpu-clock counts milliseconds.
awk -F ';' -v count="$count" '
    $1 ~ /^[0-9.]+$/ && $3 ~ /^cpu-clock/ { printf "  %-28s %12.1f ns\n", $3, $1 * 1e6 / count; next }
    $1 ~ /^[0-9.]+$/ { printf "  %-28s %12.3f\n", $3, $1 / count }' "$counts"

if grep --quiet 'instructions' "$counts" && ! grep 'instructions' "$counts" | grep --quiet '^<'; then
    exit 0
fi
by_valgrind "this machine lends no counter of instructions"
