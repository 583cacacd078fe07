#include "kernels/dtype.hpp"
