#!/bin/sh
# The simulation's policy is the server's: libsimulation.a asks others for these functions and defines none of them, the program
# has them from there, and no source of the tool declares a class of that name.
# links_scheduler.sh NM libsimulation.a simulate tools/simulate
set -eu
nm=$1 library=$2 program=$3 sources=$4
bad=0

in_library=$("$nm" -C "$library" 2>/dev/null)
in_program=$("$nm" -C "$program")
for function in Ledger::admit Ledger::next Ledger::yield Ledger::expire PromptQueue::plan PromptQueue::advance RunningBatch::plan \
  RunningBatch::apply StepBudget::prefill_rows StepBudget::note_decode BlockManager::check_integrity; do
  echo "$in_library" | grep -q " U millrace::$function(" || { echo "$function: the simulation does not call it"; bad=1; }
  echo "$in_library" | grep -q " [TtWwVv] millrace::$function(" && { echo "$function: the simulation defines it"; bad=1; }
  echo "$in_program" | grep -q " T millrace::$function(" || { echo "$function: is not in the program"; bad=1; }
done
grep -nE "(class|struct) +(Ledger|FairQueue|Admission|QueueWait|PromptQueue|RunningBatch|StepBudget|PassFit|CancelledAhead|BlockManager|BlockTable)\b" \
  "$sources"/*.hpp "$sources"/*.cpp && bad=1
exit $bad
