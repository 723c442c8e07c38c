#!/usr/bin/env bash
# Every method on the reader that ships: over five notes, as text and as pages; for needles; and over twelve notes as text.
#
#   benchmarks/pocket.sh RUNS REPORTS [N]
#
# Records go to RUNS, reports to REPORTS/five and REPORTS/twelve; N examples of each task, else 100 and 300.
set -euo pipefail
RUNS=$1 REPORTS=$2 N=${3:-}
WRITERS=$(cd "$(dirname "$0")/../training/pocket/writers" && pwd)

TEXT="full;prefix-free;dummy:k=2;dummy:k=4;dummy:k=8;template;epic:k=2;epic:k=4;epic:k=16"
TEXT="$TEXT;cacheblend:0.16;qcfuse:0.3;qcfuse-view:0.5"
TEXT="$TEXT;kv-packet:adapter=$WRITERS/kv-packet;sempic:adapter=$WRITERS/sempic;joint:adapter=$WRITERS/joint"
PAGES="qv-pic;qv-pic:template=off"
for DPI in 72 120; do
  for METHOD in full: prefix-free: dummy:k=2, dummy:k=4, dummy:k=8, template: epic:k=4, cacheblend:ratio=0.16,; do
    PAGES="$PAGES;${METHOD}dpi=$DPI"
  done
done
for DPI in 96 144 168; do
  PAGES="$PAGES;full:dpi=$DPI;template:dpi=$DPI"
done

kvbind bench run --model pocket --methods "$TEXT;$PAGES" --repeats 1 --bank "$RUNS/bank" --n "${N:-100}" \
  --tasks "biographies:kind=any;needles:haystack=notes,tokens=512,chunk=256" --out "$RUNS/five"
kvbind bench report "$RUNS/five" --out "$REPORTS/five"
kvbind bench run --model pocket --methods "$TEXT" --repeats 1 --bank "$RUNS/bank" --n "${N:-300}" \
  --tasks "biographies:kind=any,notes=12" --out "$RUNS/twelve"
kvbind bench report "$RUNS/twelve" --out "$REPORTS/twelve"
