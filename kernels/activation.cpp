#include "kernels/activation.hpp"
