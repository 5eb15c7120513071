// DynamicLibrary: a shared library that is loaded at run time, and the functions taken from it.
#pragma once

#include <dlfcn.h>

#include <string>

#include "lib/base/status.hpp"

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

/// What to tell a user who lacks a library.
struct LibraryHelp {
  const char* file;       ///< The one that belongs to the headers' interface.
  const char* transport;  ///< What needs it.
  const char* name;
  const char* version;   ///< The first that will do, "UCX 1.10".
  const char* packages;  ///< Of Debian and Ubuntu.
};

/// The functions of a library, or why there are none.
template <typename Table>
struct LoadedLibrary {
  Table table{};
  Status status;
};

/// `take(library, table)` gets every function.
template <typename Table, typename Take>
LoadedLibrary<Table> load_library(const LibraryHelp& help, Take take) {
  LoadedLibrary<Table> loaded;
  DynamicLibrary library(help.file);
  const std::string packages = " (Debian, Ubuntu: " + std::string(help.packages) + ")";
  if (!library.loaded()) {
    loaded.status = Status(ErrorCode::configuration,
                           std::string("transport ") + help.transport + " was asked for, but " + help.name +
                               " cannot be loaded (" + library.error() + "): install it" + packages);
    return loaded;
  }
  take(library, loaded.table);
  if (library.missing() != nullptr) {
    loaded.status =
        Status(ErrorCode::configuration, std::string(help.file) + " has no " + library.missing() +
                                             ": install " + help.version + " or later" + packages);
  }
  return loaded;
}

}  // namespace lockstep::internal
