#include "gateway/http/server.hpp"
