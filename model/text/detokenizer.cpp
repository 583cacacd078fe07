#include "model/text/detokenizer.hpp"
