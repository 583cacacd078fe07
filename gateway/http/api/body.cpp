#include "gateway/http/api/body.hpp"

#include <algorithm>

namespace millrace::http {

std::variant<Json, ApiError> read_body(std::string_view body, const JsonLimits& limits,
                                       std::span<const std::string_view> fields) {
  auto document = read_json(body, limits);
  if (const auto* problem = std::get_if<JsonProblem>(&document)) {
    if (std::find(fields.begin(), fields.end(), problem->member) != fields.end())
      return bad_field(problem->member, problem->message);
    return api_error(Failure{Error::malformed, {},
                             problem->member.empty() ? problem->message
                                                     : "an unknown field " + problem->message});
  }
  Json& root = std::get<Json>(document);
  if (!root.is_object())
    return api_error(Failure{Error::malformed, {}, "the body must be a JSON object, not " + std::string(kind_of(root))});
  return std::move(root);
}

} // namespace millrace::http
