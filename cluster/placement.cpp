#include "cluster/placement.hpp"
