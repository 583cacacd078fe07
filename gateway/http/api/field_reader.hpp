#pragma once

// The members of a JSON object as typed values: strictly, and null is absent.

#include "gateway/http/api/api_error.hpp"
#include "gateway/http/api/json_document.hpp"
#include "messages/ids.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::http {

/// Reads fields of one object; keeps the first failure, after which it reads nothing more. The object must outlive it.
/// An integer is written without point or exponent; booleans are no numbers; numbers are no strings.
class FieldReader {
public:
  /// `path` stands before the names in errors ("messages[2]").
  explicit FieldReader(const Json& object, std::string path = {});

  /// nullptr if the member is absent or null.
  const Json* find(std::string_view name) const;

  void read(std::string_view name, bool& out);
  void read(std::string_view name, int32_t& out);
  void read(std::string_view name, int64_t& out);
  void read(std::string_view name, float& out);
  void read(std::string_view name, std::string& out);
  void read(std::string_view name, uint64_t& out);
  void read(std::string_view name, std::vector<TokenId>& out);
  template <class T> void read(std::string_view name, std::optional<T>& out) {
    if (!failed() && find(name))
      read(name, out.emplace());
  }

  std::string path_of(std::string_view name) const;
  void fail(ApiError error);
  void fail(std::string_view name, std::string message);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

private:
  /// The member, unless one before it failed.
  const Json* next(std::string_view name) const { return failed() ? nullptr : find(name); }
  void refuse(std::string_view name, const Json& found, std::string_view wanted);

  std::string path_;
  std::map<std::string_view, const Json*> members_;
  std::optional<ApiError> error_;
};

/// Token ids without holes: what is not one is refused under its index.
std::optional<ApiError> read_ids(const std::string& path, const Json& array, std::vector<TokenId>& out);

} // namespace millrace::http
