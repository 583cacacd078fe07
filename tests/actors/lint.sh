#!/bin/sh
# Traps of CAF 0.17 that compile: a request without an end, an answer without an error handler (the requester dies of it), a
# float in a message's inspect (some values are written in an endless loop).
cd "$1" || exit 2
status=0
refuse() { # pattern reason
  if grep -nE "$1" *.hpp *.cpp scheduler/*.hpp scheduler/*.cpp; then
    echo "refused: $2"
    status=1
  fi
}
refuse 'caf::infinite' 'a request needs a timeout'
refuse '\.(then|await)\([^,]*\);' 'give an error handler, too'
refuse 'CAF_ADD_TYPE_ID\(.*\b(float|double)\b' 'floats travel inside msgpack bytes'
refuse 'CAF_ALLOW_UNSAFE_MESSAGE_TYPE\((millrace::)?(Generate|Cancel|Prompt|Sequence|SampledBatch|Progress|PromptLogprobs|Rejected)\)' \
  'this message must be able to cross processes'
exit $status
