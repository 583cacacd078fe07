// Debian's libcaf_core is not instrumented: ThreadSanitizer does not see the atomics of its mailboxes, so it takes every message
// that is read on another thread for a race. What remains under this is the lock order and the code outside of handlers; for all
// of it build CAF with ThreadSanitizer, too: instrumented_caf/CMakeLists.txt. Read by ThreadSanitizer's run time at the start;
// without it just a function.
extern "C" const char* __tsan_default_suppressions() { return "race:caf::\n"; }
