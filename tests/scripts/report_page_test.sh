#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The HTML report in a real browser: it loads without errors, its filters work, a screenshot is not blank.
# usage: report_page_test.sh ATTEST LIBRARY, a library with a kernel `top-left` that takes every causal mask for top-left
set -euo pipefail
attest=$1 library=$2
browser=$(command -v chromium || command -v chromium-headless-shell || command -v chromium-browser || command -v google-chrome || true)
[[ -n $browser ]] || { echo "no Chromium here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "report page: $*"; exit 1; }

printf '%s\n' 'q=3 k=5 causal=bottom-right' 'q=4 k=5 causal=bottom-right dtype=bf16' 'q=5 k=5' > "$folder/cases.txt"
"$attest" gate --checks none --kernel "$library:top-left" --corpus "$folder/cases.txt" --cases 0 --report "$folder/report" > /dev/null && fail "the faulty kernel passed"
page=$folder/report/index.html

# A copy that notes errors, works the filters once the page is ready and writes down what they show.
{
  sed '/<script type="application/,$d' "$page"
  echo '<script>window.onerror = text => document.documentElement.setAttribute("data-error", text);</script>'
  sed -n '/<script type="application/,/<\/script>$/p' "$page" | sed -n '1p'
  sed -n '/^<script>$/,/^<\/script>$/p' "$page"
  cat << 'SCRIPT'
<script>
const count = () => document.querySelectorAll('#list tbody tr').length;
const set = (id, value) => { const e = document.getElementById(id); e.value = value; e.dispatchEvent(new Event('input')); };
const seen = [count()];
set('filter-state', 'all'); seen.push(count());
set('filter-text', 'dtype=bf16 causal'); seen.push(count());
set('filter-text', 'no such text'); seen.push(count());
set('filter-text', ''); set('filter-state', 'fail'); seen.push(count());
document.documentElement.setAttribute('data-seen', seen.join(','));
document.documentElement.setAttribute('data-labels', [...document.querySelectorAll('select, input')].every(e => e.labels.length === 1));
document.documentElement.setAttribute('data-maps', document.querySelectorAll('canvas[role=img][aria-label]').length > 0);
document.documentElement.setAttribute('data-wide', document.documentElement.scrollWidth <= innerWidth);
</script></body></html>
SCRIPT
} > "$folder/worked.html"
look=("$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --window-size=1200,1600)
dom=$("${look[@]}" --dump-dom "file://$folder/worked.html" 2> /dev/null)
root=$(grep -o '<html [^>]*>' <<< "$dom" | head -1)
grep -q 'data-error' <<< "$root" && fail "script error: $root"
grep -q 'data-ready="yes"' <<< "$dom" || fail "the script did not come to its end"
for want in 'data-seen="2,3,1,0,2"' 'data-labels="true"' 'data-maps="true"' 'data-wide="true"'; do
  grep -q "$want" <<< "$root" || fail "wanted $want, got $root"
done
for scheme in light dark; do
  dark=(); [[ $scheme == dark ]] && dark=(--blink-settings=preferredColorScheme=0)
  "${look[@]}" "${dark[@]}" --screenshot="$folder/$scheme.png" "file://$page" > /dev/null 2>&1
  # A blank page of this size is a few kilobytes.
  (($(stat -c %s "$folder/$scheme.png") > 30000)) || fail "the $scheme screenshot is blank"
done
cmp -s "$folder/light.png" "$folder/dark.png" && fail "light and dark look the same"
[[ -z ${KEEP:-} ]] || cp "$folder"/*.png "$page" "$KEEP"
echo "report page: ok"
