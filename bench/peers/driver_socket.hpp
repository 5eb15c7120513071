// Rank 0's side of the line to the driver.
#pragma once

#include <optional>
#include <string>

namespace peers {

class DriverSocket {
 public:
  /// Connects to the driver's unix socket. Throws std::system_error.
  explicit DriverSocket(const std::string& path);
  ~DriverSocket();
  DriverSocket(const DriverSocket&) = delete;
  DriverSocket& operator=(const DriverSocket&) = delete;

  /// The next line, or nothing when the driver has gone. Sleeps meanwhile.
  std::optional<std::string> read_line();
  void write_line(const std::string& line);

 private:
  int fd_;
  std::string pending_;
};

/// The congestion controls of this process's TCP connections, comma-separated; "-" when it has none.
std::string congestion_in_use();

}  // namespace peers
