#include "gateway/journal.hpp"
