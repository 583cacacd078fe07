#include "kernels/dequantize.hpp"
