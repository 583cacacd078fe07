#include "model/sampler.hpp"
