// An environment variable that a test sets for a while.
#pragma once

#include <stdlib.h>

#include <string>
#include <utility>

namespace lockstep::internal::testing {

/// Sets one variable for the length of a scope.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
};

}  // namespace lockstep::internal::testing
