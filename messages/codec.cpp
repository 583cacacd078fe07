#include "messages/codec.hpp"
