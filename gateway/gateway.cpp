#include "gateway/gateway.hpp"
