#include "gateway/http/api/answer.hpp"

#include "gateway/http/api/sse.hpp"
#include "gateway/json.hpp"

namespace millrace::http {

void append_lagging(std::string& out, const StreamReader& reader) {
  const ApiError error{503, "lagging", {}, "this reader is too slow; the stream can be read on at from_seq", 0};
  std::string data = "{\"type\":\"lagging\",\"stream\":";
  append_json(data, reader.stream());
  data += ",\"from_seq\":";
  append_json(data, std::string_view{reader.position()});
  data += ',' + to_json(error).substr(1); // {"error": …} without its brace
  append_event(out, "lagging", {}, data);
}

} // namespace millrace::http
