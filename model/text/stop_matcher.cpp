#include "model/text/stop_matcher.hpp"
