#include "messages/ids.hpp"
