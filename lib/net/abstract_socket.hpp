// Unix sockets with a name in the abstract space of this network namespace: no file has to be removed, and a
// name is free again with the last descriptor of its socket. Every process of the namespace can list names.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// False, with the reason in errno: EADDRINUSE where another socket has the name, EINVAL where none can have
/// it.
bool bind_abstract(const Fd& socket, std::string_view name);
/// False, with the reason in errno: ECONNREFUSED where no socket has the name, and as bind_abstract.
bool connect_abstract(const Fd& socket, std::string_view name);

/// Shows others on this host, as long as it is there, that what has it is there. Costs one descriptor, and no
/// thread.
class LifeSign {
 public:
  static Result<LifeSign> show();  ///< By a name that nobody guesses.
  static Result<LifeSign> show(std::string name);
  /// To be told to those who are to look.
  const std::string& name() const { return name_; }

 private:
  LifeSign(Fd socket, std::string name) : socket_(std::move(socket)), name_(std::move(name)) {}
  Fd socket_;
  std::string name_;
};

/// Whether the sign of that name has been taken down, or its process has ended. False also where that cannot
/// be found out. Does not block.
bool is_down(std::string_view life_sign);
/// Whether it has been seen up just now. Does not block.
bool is_up(std::string_view life_sign);

}  // namespace lockstep::internal
