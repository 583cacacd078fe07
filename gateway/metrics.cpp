#include "gateway/metrics.hpp"
