#pragma once

#include "actors/type_ids.hpp"

#include <caf/scheduled_actor.hpp>

#include <string>

namespace millrace {

/// Lets an actor's death carry the exception's text to whoever watches it; CAF alone would tell them "runtime_error".
inline void die_with_text(caf::scheduled_actor* self, Error code) {
  self->set_exception_handler([code](caf::scheduled_actor*, std::exception_ptr& thrown) -> caf::error {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& exception) {
      return caf::make_error(code, std::string(exception.what()));
    } catch (...) {
      return caf::make_error(code, std::string("an exception that is no std::exception"));
    }
  });
}

} // namespace millrace
