// libzmq is not instrumented: ThreadSanitizer sees the memory that it touches through malloc, memcpy and
// recv, but not the atomics that order this. Read by ThreadSanitizer's run time at the start; without it just
// a function.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so.5\n";
}
