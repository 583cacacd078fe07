#!/usr/bin/env python3
"""Reads what ctest wrote with --output-junit; prints "PASSED FAILED SKIPPED", and why tests were skipped to stderr."""

import re
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
reasons = {}
for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
    status = case.get("status")
    if status == "run":
        passed += 1
    elif status == "fail":
        failed += 1
    else:
        skipped += 1
        # GoogleTest: "file:12: Skipped\nreason"; unittest: "... skipped 'reason'".
        output = case.findtext("system-out") or ""
        found = re.search(r": Skipped\n(.+)|skipped ['\"](.+)['\"]", output)
        reason = next((group for group in found.groups() if group), "") if found else "ctest did not run it"
        reasons[reason] = reasons.get(reason, 0) + 1

for reason, times in sorted(reasons.items()):
    print(f"  {times} skipped: {reason}", file=sys.stderr)
print(passed, failed, skipped)
