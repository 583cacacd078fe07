#include "model/text/tokenizer.hpp"
