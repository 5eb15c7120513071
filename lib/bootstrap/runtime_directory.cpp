#include "lib/bootstrap/runtime_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace lockstep::internal {
namespace {

/// Of another user it is where su(1) and sudo(8) keep the variable.
bool is_own_directory(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid();
}

}  // namespace

Result<std::string> runtime_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool usable = runtime != nullptr && *runtime == '/' && is_own_directory(runtime);
  const std::string path =
      usable ? std::string(runtime) + "/lockstep" : "/tmp/lockstep-" + std::to_string(geteuid());
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Status(ErrorCode::configuration,
                  "cannot create the directory " + path +
                      ", where ranks would meet: " + std::strerror(errno) +
                      "; set XDG_RUNTIME_DIR to a directory of this user that can be "
                      "written, or LOCKSTEP_RENDEZVOUS");
  }
  struct stat facts {};
  // Not followed: a link that another user planted must not be taken for the directory.
  if (lstat(path.c_str(), &facts) != 0) return system_error("cannot look at " + path, errno);
  const bool own = S_ISDIR(facts.st_mode) && facts.st_uid == geteuid();
  if (own && (facts.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    // A umask such as 0177 left too little, here or in an earlier job.
    if ((facts.st_mode & S_IRWXU) != S_IRWXU && chmod(path.c_str(), S_IRWXU) != 0)
      return system_error("cannot make " + path + " a directory that its user may use", errno);
    return path;
  }
  return Status(
      ErrorCode::configuration,
      path +
          " is not a directory of this user alone, so ranks cannot meet there safely; remove it, or set "
          "XDG_RUNTIME_DIR or LOCKSTEP_RENDEZVOUS");
}

}  // namespace lockstep::internal
