#include "actors/pipeline.hpp"
