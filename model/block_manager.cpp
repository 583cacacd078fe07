#include "model/block_manager.hpp"
