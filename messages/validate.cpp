#include "messages/validate.hpp"
