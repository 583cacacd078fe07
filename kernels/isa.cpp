#include "kernels/isa.hpp"
