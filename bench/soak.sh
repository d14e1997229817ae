#!/usr/bin/env bash
# Memory, allocations and latency of huntd over a long time on a real broker: their slopes, and a
# plot in the target folder.
#
#     bench/soak.sh [SECONDS] [EVENTS_PER_SECOND]
set -euo pipefail
cd "$(dirname "$0")/.."
echo "commit $(git describe --always --dirty 2>/dev/null || echo unknown), $(date --utc +%F)"
echo "$(nproc) cores, $(uname --kernel-release), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
cargo bench --bench end_to_end -- --soak "${2:-500000}" --seconds "${1:-1200}" --peers none
