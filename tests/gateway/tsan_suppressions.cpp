// libzmq is not instrumented: ThreadSanitizer sees the memory that it touches through malloc, memcpy and
// recv, but not the atomics that order this. Read by ThreadSanitizer's run time at the start; without it just
// a function. The same is true of libsodium, which decrypts for it, and of the strings that libzmq makes by code of this
// program and hands out as metadata.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so.5\n"
         "called_from_lib:libsodium.so.23\n"
         "race:millrace::sender_of\n";
}
