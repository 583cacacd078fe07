#include "gateway/streams.hpp"
