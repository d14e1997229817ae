#!/usr/bin/env bash
# The tables that docs/BENCHMARKS.md quotes and docs/figures/ keeps, in about half an hour once it is
# built. Nothing else should run meanwhile.
#
#     bench/all.sh [FILE]
#
# All tables go to the standard output and to FILE, the figures beside it as JSON.
set -euo pipefail
cd "$(dirname "$0")/.."
file="${1:-bench-results.txt}"

machine() {
    echo "commit $(git describe --always --dirty 2>/dev/null || echo unknown), $(date --utc +%F)"
    grep --max-count=1 'model name' /proc/cpuinfo | tr '\t' ' ' || true
    echo "$(nproc) cores, $(uname --kernel-release), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
}

# Built first, so that no compiler runs beside what is measured.
cargo bench --no-run --bench stages --bench decode --bench apply --bench end_to_end
{
    machine
    cargo bench --quiet --bench stages
    cargo bench --quiet --bench decode
    cargo bench --quiet --bench apply
    cargo bench --quiet --bench end_to_end -- --drain --tls --rate 250000 --rate 1000000 --search \
        --json "${file%.txt}.json"
    machine
} 2>&1 | tee "$file"
