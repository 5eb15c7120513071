// DynamicLibrary: a shared library that is loaded at run time, and the functions taken from it.
#pragma once

#include <dlfcn.h>

#include <string>

namespace lockstep::internal {

/// Never unloaded: what such libraries start in a process, they do not end.
class DynamicLibrary {
 public:
  explicit DynamicLibrary(const char* file) : handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) error_ = dlerror();
  }
  bool loaded() const { return handle_ != nullptr; }
  /// Why it is not loaded, in the loader's words.
  const std::string& error() const { return error_; }

  /// Makes `function` point to the function `name`.
  template <typename Function>
  void get(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  /// The first function that the library lacks, or nullptr.
  const char* missing() const { return missing_; }

 private:
  void* const handle_;
  std::string error_;
  const char* missing_ = nullptr;
};

}  // namespace lockstep::internal
