#include "kernels/thread_pool.hpp"
