#include "gateway/http/transport/refusal.hpp"

namespace millrace::http {

Response refuse(const Refusal& refusal) {
  const std::string_view type = refusal.status >= 500 ? "server_error" : "invalid_request_error";
  Response response;
  response.status = refusal.status;
  response.body.append(R"({"error":{"message":")")
      .append(refusal.message)
      .append(R"(","type":")")
      .append(type)
      .append(R"(","param":null,"code":")")
      .append(refusal.code)
      .append("\"}}");
  if (refusal.status == 401)
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string_view reason_phrase(int status) {
  switch (status) {
  case 200: return "OK";
  case 201: return "Created";
  case 202: return "Accepted";
  case 204: return "No Content";
  case 304: return "Not Modified";
  case 400: return "Bad Request";
  case 401: return "Unauthorized";
  case 403: return "Forbidden";
  case 404: return "Not Found";
  case 405: return "Method Not Allowed";
  case 406: return "Not Acceptable";
  case 408: return "Request Timeout";
  case 409: return "Conflict";
  case 410: return "Gone";
  case 411: return "Length Required";
  case 412: return "Precondition Failed";
  case 413: return "Content Too Large";
  case 415: return "Unsupported Media Type";
  case 416: return "Range Not Satisfiable";
  case 417: return "Expectation Failed";
  case 422: return "Unprocessable Content";
  case 429: return "Too Many Requests";
  case 431: return "Request Header Fields Too Large";
  case 500: return "Internal Server Error";
  case 501: return "Not Implemented";
  case 503: return "Service Unavailable";
  case 504: return "Gateway Timeout";
  case 505: return "HTTP Version Not Supported";
  default: return "Status"; // may be empty by the standard, which some clients do not know
  }
}

} // namespace millrace::http
