#include "model/device.hpp"
