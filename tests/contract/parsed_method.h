// A method of the C API, for as long as it is in scope.
#ifndef COVEY_TESTS_CONTRACT_PARSED_METHOD_H_
#define COVEY_TESTS_CONTRACT_PARSED_METHOD_H_

#include "core/api/covey_methods.h"

namespace covey {

class ParsedMethod {
 public:
  // `code` and `error` say whether it is one.
  ParsedMethod(const char* text, covey_error* error)
      : code(covey_method_parse(nullptr, text, &method_, error)) {}
  ParsedMethod(const ParsedMethod&) = delete;
  ~ParsedMethod() { covey_method_free(method_); }

  const covey_method* get() const { return method_; }

 private:
  covey_method* method_ = nullptr;

 public:
  const covey_code code;
};

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_PARSED_METHOD_H_
