#include "messages/error.hpp"
