#include "gateway/http/api.hpp"
