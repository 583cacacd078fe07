#include "model/gguf.hpp"
